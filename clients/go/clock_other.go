//go:build !linux

// Reads the clocks where CLOCK_BOOTTIME does not exist.
//
// The awake clock is the monotonic clock of the Go runtime, which stops in suspend on most of these systems. The
// deciding clock adds the time by which the wall clock ran ahead of it between two readings: that is how a sleep shows.
// The limits: a wall clock that is set forward looks like a sleep and ends leases too early, which is safe; one that is
// set back during a sleep can hide that sleep, and a guard then counts as held for too long. A fence at the resource
// covers that.

package tenure

import (
	"sync"
	"time"
)

// step is how long the alarm sleeps at most, because timers of the runtime stop while the machine sleeps. It is also
// how often the two clocks are compared.
const step = 50 * time.Millisecond

// A machineClock reads the clocks of the machine, and adds up how long it slept.
type machineClock struct {
	mu    sync.Mutex
	began time.Time
	last  time.Time
	slept time.Duration
}

func newMachineClock() *machineClock {
	now := time.Now()
	return &machineClock{began: now, last: now}
}

// read reads both clocks.
func (c *machineClock) read() clockReading {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	// Round strips the monotonic reading, so the first difference is that of the wall clock.
	wall, awake := now.Round(0).Sub(c.last.Round(0)), now.Sub(c.last)
	if ahead := wall - awake; ahead > sleepMin {
		c.slept += ahead
	}
	c.last = now
	// Moments begin above zero, so that there is one before each.
	at := moment(1_000_000).add(now.Sub(c.began))
	return clockReading{boot: at.add(c.slept), awake: at}
}

// An alarm fires at a moment of the deciding clock. It looks at the clock every step.
type alarm struct {
	clock   *machineClock
	changed chan moment
	done    chan struct{}
	once    sync.Once
}

func newAlarm(clock *machineClock) (*alarm, error) {
	return &alarm{clock: clock, changed: make(chan moment, 1), done: make(chan struct{})}, nil
}

func (a *alarm) set(at moment) {
	for {
		select {
		case a.changed <- at:
			return
		case <-a.changed:
		}
	}
}

// wait blocks until the alarm fires. It returns false once the alarm is closed.
func (a *alarm) wait() bool {
	at := farMoment
	for {
		select {
		case at = <-a.changed:
		default:
		}
		left := min(at.since(a.clock.read().boot), step)
		if left == 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case at = <-a.changed:
		case <-timer.C:
		case <-a.done:
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

func (a *alarm) close() { a.once.Do(func() { close(a.done) }) }
