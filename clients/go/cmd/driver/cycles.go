// Measures how often workers take and release locks of their own under one lease.

package main

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

func (d *driver) cycles(ctx context.Context, it command) (fields, error) {
	client, err := d.objects.clients.get(it.Handle)
	if err != nil {
		return nil, err
	}
	lease, err := client.Lease(ctx, 15*time.Second)
	if err != nil {
		return nil, err
	}
	var count atomic.Int64
	end, failed := time.Now().Add(milliseconds(it.Ms)), make(chan error, it.Workers)
	for worker := range it.Workers {
		go func() { failed <- cycle(ctx, lease, "cycles/"+strconv.Itoa(worker), end, &count) }()
	}
	var problems []error
	for range it.Workers {
		problems = append(problems, <-failed)
	}
	problems = append(problems, lease.Release(ctx))
	return fields{"cycles": count.Load()}, errors.Join(problems...)
}

func cycle(ctx context.Context, lease *tenure.Lease, lock string, end time.Time, count *atomic.Int64) error {
	for time.Now().Before(end) {
		guard, err := lease.Lock(ctx, lock)
		if err != nil {
			return err
		}
		if err := guard.Release(ctx); err != nil {
			return err
		}
		count.Add(1)
	}
	return nil
}
