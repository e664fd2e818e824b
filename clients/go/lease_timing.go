// Computes the timing of a lease: how long it is relied on after a renewal, and when it is renewed.

package tenure

import (
	"fmt"
	"time"
)

const (
	// rateErrorPPM bounds the difference of clock rates: some fifteen times the real difference.
	rateErrorPPM = 10_000
	million      = 1_000_000
	// The shortest and the longest ttl. A cluster may allow less than its usual minimum of one second: the cluster
	// decides.
	ttlMin = 100 * time.Millisecond
	ttlMax = time.Hour
)

// A leaseTiming is the times of one lease, all derived from its ttl.
type leaseTiming struct {
	ttl    time.Duration
	window time.Duration
	stop   time.Duration
}

// newLeaseTiming computes the default times of a ttl: the lease is relied on for half of it after a renewal.
func newLeaseTiming(ttl time.Duration) (leaseTiming, error) {
	if ttl < ttlMin || ttl > ttlMax {
		return leaseTiming{}, invalid("INVALID_TTL", "a ttl of %v is not between 100ms and 1h", ttl)
	}
	return leaseTiming{ttl: ttl, window: ttl / 2}, nil
}

// stopWithin declares how long the work may take to stop once it is told to.
func (t leaseTiming) stopWithin(grace time.Duration) (leaseTiming, error) {
	most := max(t.surelyLives()-t.window, 0)
	if grace < 0 || grace > most {
		refused := invalid("INVALID_GRACE", "grace %v does not fit ttl %v (at most %s)", grace, t.ttl, seconds(most))
		refused.most = most
		return leaseTiming{}, refused
	}
	t.stop = grace
	return t, nil
}

// withWindow sets how long the lease is relied on after a renewal, instead of half of the ttl.
func (t leaseTiming) withWindow(window time.Duration) (leaseTiming, error) {
	least, most := t.ttl/3, max(t.surelyLives()-t.stop, 0)
	if window <= least || window > most {
		refused := invalid("INVALID_WINDOW", "window %v does not fit ttl %v (more than %s, at most %s)",
			window, t.ttl, seconds(least), seconds(most))
		refused.least, refused.most = least, most
		return leaseTiming{}, refused
	}
	t.window = window
	return t, nil
}

// surelyLives is how long after a renewal was sent the cluster surely keeps the lease, by the clock of this machine.
func (t leaseTiming) surelyLives() time.Duration {
	micros := t.ttl.Microseconds()
	return time.Duration(micros*(million-rateErrorPPM)/(million+rateErrorPPM)) * time.Microsecond
}

// doubtfulAfter is how long after a renewal was sent the lease becomes doubtful, if no newer one is acknowledged.
func (t leaseTiming) doubtfulAfter() time.Duration { return (t.ttl/3 + t.window) / 2 }

// renewAfter is when the next renewal is sent, counted from the last acknowledged one.
func (t leaseTiming) renewAfter() time.Duration { return t.ttl / 3 }

// retry is how long one attempt may take, and how soon the next one follows.
func (t leaseTiming) retry() time.Duration { return t.ttl / 24 }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
