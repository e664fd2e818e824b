// Explains why a lock is not free: who holds it, who waits for it and for what they wait, and when it can be free.

package tenure

import (
	"context"
	"time"
)

// A WaiterInfo is one position in the queue of a lock.
type WaiterInfo struct {
	Client string
	// Lease is the lease that waits: what [Guard.HandOn] takes.
	Lease LeaseID
	// Mode is exclusive, shared or slot.
	Mode string
	// Slots is how many slots the request says the semaphore has, zero for any other lock; Take is how many of them it
	// asks for, one for any other lock.
	Slots int
	Take  int
	// Ahead is how many are before it.
	Ahead int
	// Waited is how long it has waited; Left is how much longer it will, nil for no limit.
	Waited time.Duration
	Left   *time.Duration
	// Created is the revision at which it came.
	Created Revision
	// Election: it is a candidate.
	Election bool
	// Locks are all locks of the request. Any: one of them is enough. Pool is the prefix of the pool whose slots they
	// are, or empty.
	Locks []string
	Any   bool
	Pool  string
	// Supersede is the group whose next request replaces it, or empty.
	Supersede string
	Priority  int
	// Passable is for how much longer new requests with a higher priority may pass it.
	Passable time.Duration
}

// A ChainStep is one step of a chain of waits: this client has this lock.
type ChainStep struct {
	Lock   string
	Client string
	Lease  LeaseID
}

// An Explanation says who has a lock, who waits for it, and when it can be free.
type Explanation struct {
	// Revision is the one that the answer is based on.
	Revision Revision
	// Lock is nil if no client holds or awaits it.
	Lock *LockInfo
	// Waiters are the first few in the queue; with [AheadOf], those before the lease that is named there.
	Waiters []WaiterInfo
	// Own is the position of that lease itself; nil if it does not wait, or if none was named.
	Own *WaiterInfo
	// Chain says which client waits for which, from the lock's first holder on. ChainGoesOn: it is longer than shown.
	Chain       []ChainStep
	ChainGoesOn bool
	// FreeIfSilent is when it is free if its holders stop renewing; FreeAtLatest, whatever they do. At most one of them is
	// not nil: none, while the lock is below a closed prefix, or if no client holds or awaits it.
	FreeIfSilent *time.Duration
	FreeAtLatest *time.Duration
	// UsuallyHeld is the median of the last holds that the answering member has seen end, nil if it has seen none, and
	// UsuallyOf how many those were.
	UsuallyHeld *time.Duration
	UsuallyOf   int
	// GrantsAfter is how long the cluster grants no locks, because it was restored. Nil: it grants.
	GrantsAfter *time.Duration
	// Drained is the closed prefix that the lock is below, without its holders. While there is one, the lock is not
	// granted.
	Drained *Drain
	// Reopening is for how long the cluster has served the queues again, because a prefix was opened or the quiet time
	// after a restore is over, if this lock can be granted and its turn is still to come. Nil otherwise.
	Reopening *time.Duration
}

// An ExplainOption is an option of [Client.Explain].
type ExplainOption func(*wireWhich)

// AheadOf explains the lock to this lease: who is before it in the queue, and its own position.
func AheadOf(lease LeaseID) ExplainOption { return func(w *wireWhich) { w.Lease = decimal(lease) } }

// Explain returns who has a lock, who waits for it, and when it can be free.
func (c *Client) Explain(ctx context.Context, lock string, options ...ExplainOption) (*Explanation, error) {
	if err := checkName(lock); err != nil {
		return nil, err
	}
	which := &wireWhich{Lock: lock}
	for _, option := range options {
		option(which)
	}
	answer, err := c.call(ctx, wireRequest{Explain: which}, identity{})
	if err != nil {
		return nil, err
	}
	if answer.Explained == nil {
		return nil, strange()
	}
	return answer.Explained.explanation(Revision(answer.Revision)), nil
}

func (w *wireExplained) explanation(revision Revision) *Explanation {
	explanation := &Explanation{
		Revision: revision, Lock: lockInfo(w.Lock), ChainGoesOn: w.ChainGoesOn,
		FreeIfSilent: durationOf(w.FreeIfSilentMs), FreeAtLatest: durationOf(w.FreeAtLatestMs),
		UsuallyHeld: durationOf(w.UsuallyHeldMs), UsuallyOf: w.UsuallyOf,
		GrantsAfter: durationOf(w.QuietMs), Reopening: durationOf(w.ReopeningMs),
	}
	for _, waiter := range w.Ahead {
		explanation.Waiters = append(explanation.Waiters, waiter.info())
	}
	if w.Own != nil {
		own := w.Own.info()
		explanation.Own = &own
	}
	for _, step := range w.Chain {
		it := ChainStep{Lock: step.Lock, Client: step.Client, Lease: LeaseID(step.Lease)}
		explanation.Chain = append(explanation.Chain, it)
	}
	if w.Drained != nil {
		drained := w.Drained.drain()
		explanation.Drained = &drained
	}
	return explanation
}

func (w *wireWaiter) info() WaiterInfo {
	return WaiterInfo{
		Client: w.Client, Lease: LeaseID(w.Lease), Mode: w.Mode, Slots: w.Slots, Take: max(w.Take, 1), Ahead: w.Ahead,
		Waited: milliseconds(w.WaitingMs), Left: durationOf(w.LeftMs), Created: Revision(w.Created),
		Election: w.Election, Locks: w.Locks, Any: w.Any, Pool: w.Pool, Supersede: w.Supersede, Priority: w.Priority,
		Passable: milliseconds(w.PassableMs),
	}
}

// durationOf converts a time that may be absent.
func durationOf(ms *uint64) *time.Duration {
	if ms == nil {
		return nil
	}
	it := milliseconds(*ms)
	return &it
}
