// Spreads pauses over time.

package tenure

import (
	"math/rand/v2"
	"time"
)

// jittered returns a time between a half and the whole of d, so that clients that lost the same member do not return
// to it at the same moment.
func jittered(d time.Duration) time.Duration {
	half := d / 2
	return half + rand.N(max(half, 1))
}
