"""Published tables beside our runs: `refattn reproduce`."""
