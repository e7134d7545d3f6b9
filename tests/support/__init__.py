"""What tests of several folders share: worlds in virtual time, stores, processes, clients."""
