// Defines the options of a lock request: mode, wait, ttl and what the grant carries.

package tenure

import (
	"context"
	"math"
	"time"
	"unicode"
	"unicode/utf8"
)

// A choice says which of its locks a request is for.
type choice int

const (
	allOf choice = iota
	anyOf
	// ofPool: any slot of the pool whose prefix is the only name.
	ofPool
)

// A LockOption is one option of a request for a lock.
type LockOption func(*lockOptions)

// lockOptions are all options of a lock request except its locks and its lease.
type lockOptions struct {
	choice      choice
	mode        string
	slots       uint32
	take        *int // nil for one
	priority    int
	supersede   *string
	minHold     time.Duration
	progress    time.Duration
	upgrade     bool
	wait        *time.Duration // nil for no limit, 0 for not at all
	ttl         time.Duration
	window      *time.Duration // nil for the client's
	grace       time.Duration
	lockDelay   time.Duration
	maxHold     time.Duration
	metadata    []byte
	independent bool
	election    bool
	onQueued    func(ahead int)
	fence       func(ctx context.Context, lock GrantedLock) error
	refused     *InvalidError
}

// Shared acquires in shared mode: together with other shared holders, never together with an exclusive one. Not for
// [Client.Pool].
func Shared() LockOption { return func(o *lockOptions) { o.mode = "shared" } }

// Slots acquires one of n numbered slots of a semaphore. Not for [Client.Pool], whose semaphores have sizes already.
func Slots(n int) LockOption {
	return func(o *lockOptions) {
		if n < 1 || n > math.MaxInt32 {
			o.refused = invalid("INVALID_SLOTS", "a semaphore cannot have %d slots", n)
			return
		}
		o.mode, o.slots = "slot", uint32(n)
	}
}

// Take acquires n of the [Slots] of a semaphore, all at once or none. Each slot is one of the guard's [Guard.Locks], with a
// token of its own. No request passes one that waits for more slots than are free. More than one needs feature level 11.
func Take(n int) LockOption { return func(o *lockOptions) { o.take = &n } }

// Priority makes the request more urgent, from 0 (the default) to 9: it stands in the queue as if it had asked 30
// seconds earlier for each step. So it passes only requests that asked within that time before it, and no request waits
// for ever. A request that does not wait passes no other. Where identity is enabled, the caller needs the verb force for
// the lock. Needs feature level 8.
func Priority(priority int) LockOption { return func(o *lockOptions) { o.priority = priority } }

// Supersede replaces the older requests of this group that wait for the same lock, if this one has to wait: for work of
// which only the newest matters, such as deploys. The older ones are refused with the reason SUPERSEDED. A holder is
// never replaced. Groups of different principals are different.
func Supersede(group string) LockOption { return func(o *lockOptions) { o.supersede = &group } }

// MinHold withholds the lock from all clients until d has passed since the grant, even if it is released earlier: for
// work that must not run twice within a period. The period counts starts, whether or not the work succeeds. A job that a
// timer starts once per hour takes somewhat less than an hour, so that a timer that is a little early does not skip one.
func MinHold(d time.Duration) LockOption { return func(o *lockOptions) { o.minHold = d } }

// ProgressWithin promises progress: after the grant, and after each report, a larger number follows within d, reported
// with [Guard.Progress]. A holder that is alive but stuck loses the lock with [CauseNoProgress]. Needs feature level 9.
func ProgressWithin(d time.Duration) LockOption { return func(o *lockOptions) { o.progress = d } }

// Wait queues for at most d. When the time is over the request fails with [ErrWaitTimeout] if it was queued, and with
// [ErrUnknown] or [ErrUnavailable] if no member has answered. Zero is [NoWait].
func Wait(d time.Duration) LockOption {
	return func(o *lockOptions) {
		if d < 0 {
			o.refused = invalid("INVALID_WAIT", "a wait of %v is negative", d)
			return
		}
		o.wait = &d
	}
}

// NoWait does not queue: the lock is granted at once, or the request is refused with [ErrHeld].
func NoWait() LockOption { return Wait(0) }

// TTL sets the ttl of the lease that is created for the lock. It has no effect under an existing lease.
func TTL(d time.Duration) LockOption { return func(o *lockOptions) { o.ttl = d } }

// Window sets how long the lease is relied on after a renewal was sent. The default is half of its ttl.
func Window(d time.Duration) LockOption { return func(o *lockOptions) { o.window = &d } }

// Grace declares how long the work takes to stop. The request fails if that does not fit the ttl.
func Grace(d time.Duration) LockOption { return func(o *lockOptions) { o.grace = d } }

// LockDelay withholds the lock from other clients for this long after a hold that its holder did not end itself.
func LockDelay(d time.Duration) LockOption { return func(o *lockOptions) { o.lockDelay = d } }

// MaxHold limits the hold to d, which must be longer than the ttl. The cluster then takes the lock away.
func MaxHold(d time.Duration) LockOption { return func(o *lockOptions) { o.maxHold = d } }

// Metadata attaches metadata to the grant, which other clients can read.
func Metadata(data []byte) LockOption { return func(o *lockOptions) { o.metadata = data } }

// Independent declares that other goroutines of the lease continue while this one waits, so that deadlock detection
// ignores this wait.
func Independent() LockOption { return func(o *lockOptions) { o.independent = true } }

// OnQueued calls tell with the number of waiters ahead when the request has to queue, and again after a reconnect. It
// must not block.
func OnQueued(tell func(ahead int)) LockOption { return func(o *lockOptions) { o.onQueued = tell } }

// Fence raises the highest token seen at the resource before the guard is handed out. If raise fails, the lock is given
// back and the request fails with a [*FenceError]. The context of raise ends with the caller's, after [Config.Timeout], and
// when the lock is lost. A lock that is lost meanwhile fails the request with a [*LostError], and a caller's context that
// has ended with a [*CancelledError], whatever raise returns.
func Fence(raise func(ctx context.Context, lock GrantedLock) error) LockOption {
	return func(o *lockOptions) { o.fence = raise }
}

// nameBytesMax is the longest name of a lock or key.
const nameBytesMax = 512

// checkName refuses names that the cluster would refuse.
func checkName(name string) error {
	switch {
	case name == "":
		return invalid("INVALID_NAME", "a name is empty")
	case len(name) > nameBytesMax:
		return invalid("INVALID_NAME", "a name is longer than %d bytes", nameBytesMax)
	case !utf8.ValidString(name):
		return invalid("INVALID_NAME", "a name is not UTF-8")
	}
	for _, char := range name {
		if unicode.IsControl(char) {
			return invalid("INVALID_NAME", "the name %q has control characters", name)
		}
	}
	return nil
}

func lockOptionsOf(choice choice, locks []string, options []LockOption) (lockOptions, error) {
	o := lockOptions{choice: choice}
	for _, option := range options {
		option(&o)
	}
	if o.refused != nil {
		return o, o.refused
	}
	if len(locks) == 0 {
		return o, invalid("INVALID_FIELD", "no lock is named")
	}
	switch {
	case choice == ofPool && o.mode != "":
		return o, invalid("INVALID_FIELD", "a pool goes without shared and slots: its slots have their own")
	case o.take != nil && (o.slots == 0 && choice != ofPool || *o.take < 1 || *o.take > math.MaxInt32):
		return o, invalid("INVALID_FIELD", "take of %d is not at least 1, or goes without slots", *o.take)
	case o.priority < 0 || o.priority > 9:
		return o, invalid("INVALID_FIELD", "a priority of %d is not from 0 to 9", o.priority)
	case o.minHold < 0:
		return o, invalid("INVALID_FIELD", "a min hold of %v is negative", o.minHold)
	case o.progress < 0:
		return o, invalid("INVALID_FIELD", "progress within %v is negative", o.progress)
	}
	if o.supersede != nil {
		if err := checkName(*o.supersede); err != nil {
			return o, err
		}
	}
	for _, lock := range locks {
		if err := checkName(lock); err != nil {
			return o, err
		}
	}
	return o, nil
}

// request builds the acquire request without its lease.
func (o *lockOptions) request(locks []string, until time.Time) *wireAcquire {
	request := &wireAcquire{
		LockDelayMs: millis(o.lockDelay), Election: o.election, Independent: o.independent, WaitMs: o.waitMs(until),
	}
	request.MinHoldMs, request.ProgressWithinMs = millis(o.minHold), millis(o.progress)
	request.Priority, request.Upgrade = uint32(o.priority), o.upgrade
	if o.supersede != nil {
		request.Supersede = *o.supersede
	}
	if o.maxHold != 0 {
		hold := millis(o.maxHold)
		request.MaxHoldMs = &hold
	}
	if len(o.metadata) > 0 {
		request.Metadata, request.MetadataBase64 = textOrBase64(o.metadata)
	}
	take := uint32(0)
	if o.take != nil {
		take = uint32(*o.take)
	}
	if o.choice == ofPool {
		request.Pool, request.Take = locks[0], take
		return request
	}
	if len(locks) == 1 {
		request.Lock, request.Mode, request.Slots, request.Take = locks[0], o.mode, o.slots, take
		return request
	}
	request.Any = o.choice == anyOf
	for _, lock := range locks {
		request.Locks = append(request.Locks, wireLockAsk{Lock: lock, Mode: o.mode, Slots: o.slots, Take: take})
	}
	return request
}

// waitMs is the wait to request from the cluster: what is left until the deadline.
func (o *lockOptions) waitMs(until time.Time) *uint64 {
	if o.wait == nil {
		return nil
	}
	left := uint64(0)
	if *o.wait != 0 {
		left = max(millis(time.Until(until)), 1)
	}
	return &left
}

// noWait returns whether the request does not queue.
func (o *lockOptions) noWait() bool { return o.wait != nil && *o.wait == 0 }
