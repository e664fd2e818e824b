// Offers a lock as a sync.Locker.

package tenure

import (
	"context"
	"errors"
	"sync"
)

// A Locker is a lock as a [sync.Locker], for code that takes one. Prefer [Client.Do]: a sync.Locker cannot tell its user
// that the lock is lost, so call [Locker.Check] before every step that must not run late.
type Locker struct {
	client  *Client
	name    string
	options []LockOption

	mu    sync.Mutex
	guard *Guard
}

var _ sync.Locker = (*Locker)(nil)

// Locker returns the lock of this name as a [sync.Locker].
func (c *Client) Locker(name string, options ...LockOption) *Locker {
	return &Locker{client: c, name: name, options: options}
}

// Lock waits until the lock is held, and asks again if no member can be reached. It panics if the cluster refuses the
// request for good, or if the client is closed: a sync.Locker has no other way to say so.
func (l *Locker) Lock() {
	pause := dialPauseMin
	for {
		guard, err := l.client.Lock(context.Background(), l.name, l.options...)
		if err == nil {
			l.mu.Lock()
			l.guard = guard
			l.mu.Unlock()
			return
		}
		if !Retryable(err) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrLost) {
			panic(err)
		}
		sleep(context.Background(), jittered(pause))
		pause = min(pause*2, dialPauseMax)
	}
}

// Unlock releases the lock. The caller must have stopped its work. It panics if the lock was not locked, and returns
// quietly if it was lost meanwhile; the client logs that.
func (l *Locker) Unlock() {
	l.mu.Lock()
	guard := l.guard
	l.guard = nil
	l.mu.Unlock()
	if guard == nil {
		panic("tenure: unlock of unlocked Locker")
	}
	if err := guard.Release(context.Background()); err != nil && !errors.Is(err, ErrLost) {
		guard.hold.warn(err)
	}
}

// Guard returns the guard of the held lock, or nil.
func (l *Locker) Guard() *Guard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.guard
}

// Check returns nil if the lock is held and can be relied on at this moment.
func (l *Locker) Check() error {
	if guard := l.Guard(); guard != nil {
		return guard.Check()
	}
	return lostError(loss{cause: CauseReleased}, l.name, 0)
}
