"""What the benchmarks count, and how their pages show it."""

from pathlib import Path

from benchmarks.rows import NewFiles


def test_files_that_are_deleted_during_a_row_do_not_lower_its_count_of_new_files(tmp_path: Path):
    lane = tmp_path / "lanes" / "1"
    lane.mkdir(parents=True)
    for number in range(3):
        (lane / str(number)).touch()
    files = NewFiles(tmp_path)
    (lane / "3").touch()
    for number in range(3):
        (lane / str(number)).unlink()
    assert files.count() == 1
