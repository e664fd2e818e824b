// Reads CLOCK_MONOTONIC, by which the runner compares the times of all drivers.

package main

import "golang.org/x/sys/unix"

func monotonicMicros() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano() / 1_000
}
