//go:build !linux

// Counts from the start of the driver: the conformance runner, which compares times of drivers, needs Linux.

package main

import "time"

var began = time.Now()

func monotonicMicros() int64 { return time.Since(began).Microseconds() }
