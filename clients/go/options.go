// Defines the options of a lock request: mode, wait, ttl and what the grant carries.

package tenure

import (
	"context"
	"math"
	"time"
	"unicode"
	"unicode/utf8"
)

// A LockOption is one option of a request for a lock.
type LockOption func(*lockOptions)

// lockOptions are all options of a lock request except its locks and its lease.
type lockOptions struct {
	mode        string
	slots       uint32
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

// Shared acquires in shared mode: together with other shared holders, never together with an exclusive one.
func Shared() LockOption { return func(o *lockOptions) { o.mode = "shared" } }

// Slots acquires one of n numbered slots of a semaphore.
func Slots(n int) LockOption {
	return func(o *lockOptions) {
		if n < 1 || n > math.MaxInt32 {
			o.refused = invalid("INVALID_SLOTS", "a semaphore cannot have %d slots", n)
			return
		}
		o.mode, o.slots = "slot", uint32(n)
	}
}

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
// back and the request fails with that error. The context ends with the caller's, and when the lock is lost.
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

func lockOptionsOf(locks []string, options []LockOption) (lockOptions, error) {
	var o lockOptions
	for _, option := range options {
		option(&o)
	}
	if o.refused != nil {
		return o, o.refused
	}
	if len(locks) == 0 {
		return o, invalid("INVALID_FIELD", "no lock is named")
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
	if o.maxHold != 0 {
		hold := millis(o.maxHold)
		request.MaxHoldMs = &hold
	}
	if len(o.metadata) > 0 {
		request.Metadata, request.MetadataBase64 = textOrBase64(o.metadata)
	}
	if len(locks) == 1 {
		request.Lock, request.Mode, request.Slots = locks[0], o.mode, o.slots
		return request
	}
	for _, lock := range locks {
		request.Locks = append(request.Locks, wireLockAsk{Lock: lock, Mode: o.mode, Slots: o.slots})
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
