// Package controller runs a part of a controller-runtime manager only while this process leads.
//
// A [Runnable] is added to a manager like any other: it campaigns when the manager starts, runs its work while it leads,
// and resigns when the manager stops. The work gets a context that ends before another process can lead, and a fencing
// token for what it writes.
//
// A manager whose every controller needs leadership uses the package leaderelection instead, with the option
// LeaderElectionResourceLockInterface.
package controller

import (
	"context"
	"errors"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Work is what runs while this process leads. It must return soon after its context has ended.
type Work func(ctx context.Context, lead *tenure.Leadership) error

// A Runnable runs work while this process leads.
type Runnable struct {
	election *tenure.Election
	value    []byte
	work     Work
	options  []tenure.LockOption
}

var (
	_ manager.Runnable               = (*Runnable)(nil)
	_ manager.LeaderElectionRunnable = (*Runnable)(nil)
)

// New returns a runnable that campaigns in an election with a value for other clients to see.
func New(election *tenure.Election, value []byte, work Work, options ...tenure.LockOption) *Runnable {
	return &Runnable{election: election, value: value, work: work, options: options}
}

// Running returns work that runs another runnable, such as a controller that was made without its manager.
func Running(inner manager.Runnable) Work {
	return func(ctx context.Context, _ *tenure.Leadership) error { return inner.Start(ctx) }
}

// NeedLeaderElection returns false: the runnable elects its leader itself, whatever the manager does.
func (r *Runnable) NeedLeaderElection() bool { return false }

// Start campaigns, runs the work and resigns. When the leadership is lost it waits until the work has returned and
// campaigns again. It returns when the context ends, and with the error of work that failed.
func (r *Runnable) Start(ctx context.Context) error {
	for {
		err := r.election.Lead(ctx, r.value, r.work, r.options...)
		var lost *tenure.LostError
		switch {
		case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
			return nil
		// A leadership that was taken away is campaigned for again, as is one that no member could grant.
		case errors.As(err, &lost) && lost.Cause != tenure.CauseReleased, tenure.Retryable(err), errors.Is(err, tenure.ErrUnknown):
			if ctx.Err() != nil {
				return nil
			}
		default:
			return err
		}
	}
}
