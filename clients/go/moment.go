// Defines instants of the clock that decides about leases, and a reading of both clocks.

package tenure

import "time"

// A moment is an instant of the clock that also counts while the machine is suspended, in microseconds since that
// clock began.
type moment uint64

// farMoment is later than everything a lease waits for.
const farMoment = moment(1<<64 - 1)

func (m moment) add(d time.Duration) moment {
	sum := m + moment(d.Microseconds())
	if sum < m {
		return farMoment
	}
	return sum
}

// since returns how long after earlier this instant is, or zero if it is not later.
func (m moment) since(earlier moment) time.Duration {
	if m <= earlier {
		return 0
	}
	return time.Duration(m-earlier) * time.Microsecond
}

// A clockReading is both clocks of the machine, read together.
type clockReading struct {
	// boot is the clock that counts while the machine is suspended. This one decides.
	boot moment
	// awake is the clock that stops in suspend. Its distance to boot shows how long the machine was suspended.
	awake moment
}

// slept returns how long the machine has been suspended since its clocks began.
func (r clockReading) slept() time.Duration {
	return r.boot.since(r.awake)
}
