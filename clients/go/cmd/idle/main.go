//go:build linux

// Command idle measures what idle leases cost one process, and how many cycles of lock and release it makes per second.
//
//	go run ./cmd/idle -leases 1000 -seconds 30
//
// The cluster is that of TENURE_ADDR, or one on this machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

func main() {
	leases := flag.Int("leases", 1_000, "how many leases to hold")
	seconds := flag.Int("seconds", 30, "how long to hold them")
	workers := flag.Int("workers", 16, "how many goroutines lock and release at once")
	flag.Parse()
	ctx := context.Background()
	client, err := tenure.FromEnv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	idle(ctx, client, *leases, time.Duration(*seconds)*time.Second)
	for _, count := range []int{1, *workers} {
		cycles(ctx, client, count)
	}
	if err := client.Close(ctx); err != nil {
		log.Fatal(err)
	}
}

// idle holds leases and prints what they cost.
func idle(ctx context.Context, client *tenure.Client, count int, hold time.Duration) {
	before := resident()
	var held []*tenure.Lease
	for range count {
		lease, err := client.Lease(ctx, 15*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		held = append(held, lease)
	}
	runtime.GC()
	began, used := time.Now(), processor()
	time.Sleep(hold)
	share := 100 * float64(processor()-used) / float64(time.Since(began))
	for _, lease := range held {
		if err := lease.Check(); err != nil {
			log.Fatal(err)
		}
	}
	after := resident()
	fmt.Printf("idle leases=%d seconds=%.0f rss_kib=%d per_lease_kib=%.1f cpu_percent=%.2f\n",
		count, hold.Seconds(), after, float64(after-before)/float64(count), share)
	for _, lease := range held {
		if err := lease.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
}

// cycles locks and releases for five seconds under one lease per goroutine, and prints how often.
func cycles(ctx context.Context, client *tenure.Client, workers int) {
	const lasting = 5 * time.Second
	var done atomic.Int64
	var group sync.WaitGroup
	end := time.Now().Add(lasting)
	for worker := range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			lease, err := client.Lease(ctx, 15*time.Second)
			if err != nil {
				log.Fatal(err)
			}
			name := "cycles/" + strconv.Itoa(worker)
			for time.Now().Before(end) {
				guard, err := lease.Lock(ctx, name)
				if err != nil {
					log.Fatal(err)
				}
				if err := guard.Release(ctx); err != nil {
					log.Fatal(err)
				}
				done.Add(1)
			}
			if err := lease.Release(ctx); err != nil {
				log.Fatal(err)
			}
		}()
	}
	group.Wait()
	fmt.Printf("cycles workers=%d per_second=%.0f\n", workers, float64(done.Load())/lasting.Seconds())
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// resident returns the resident memory of this process in KiB, as Linux shows it.
func resident() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		log.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return kib
}
