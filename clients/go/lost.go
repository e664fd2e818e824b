// Describes a loss: its cause, who caused it and why.

package tenure

import (
	"fmt"
	"time"
)

// Cause says why a lease or a lock was lost: a stable word for programs and logs.
type Cause string

// The causes of a loss.
const (
	// CauseExpired: the cluster ended the lease because it was not renewed in time.
	CauseExpired Cause = "expired"
	// CauseRevoked: another client revoked the lease.
	CauseRevoked Cause = "revoked"
	// CauseForced: an operator or another client took the lock away.
	CauseForced Cause = "forced"
	// CauseMaxHold: the lock was held for its maximum hold time.
	CauseMaxHold Cause = "max_hold"
	// CauseNoProgress: the holder did not report a larger number in the time that it promised.
	CauseNoProgress Cause = "no_progress"
	// CauseGone: the cluster no longer has the lease or the grant, and this client does not know why.
	CauseGone Cause = "gone"
	// CauseUnreachable: no member acknowledged a renewal in time.
	CauseUnreachable Cause = "cluster_unreachable"
	// CauseCredentialsRefused: the members refused the client's credentials, so no renewal was acknowledged in time.
	CauseCredentialsRefused Cause = "credentials_refused"
	// CauseStalled: this process did not run in time.
	CauseStalled Cause = "local_stall"
	// CauseSuspended: the machine was suspended.
	CauseSuspended Cause = "suspended"
	// CauseReleased: the holder released the lock.
	CauseReleased Cause = "released"
)

// A loss is the cause of a loss and, if another client or an operator caused it, who and why.
type loss struct {
	cause  Cause
	by     string
	reason string
	// How long nothing was acknowledged, the process was late, or the machine slept; by cause.
	lasted time.Duration
}

func (l loss) String() string {
	var text string
	switch {
	case l.by != "" && (l.cause == CauseForced || l.cause == CauseRevoked):
		text = fmt.Sprintf("%s by %s", l.cause, l.by)
	default:
		text = l.sentence()
	}
	if l.reason != "" {
		text += ": " + l.reason
	}
	return text
}

func (l loss) sentence() string {
	lasted := seconds(l.lasted)
	switch l.cause {
	case CauseExpired:
		return "the lease was not renewed in time"
	case CauseRevoked:
		return "the lease was revoked by another caller"
	case CauseForced:
		return "taken away by force"
	case CauseMaxHold:
		return "held as long as max_hold allows"
	case CauseNoProgress:
		return "no progress in the promised time"
	case CauseGone:
		return "the cluster does not have it any more"
	case CauseUnreachable:
		return "cluster unreachable for " + lasted
	case CauseCredentialsRefused:
		return "the credentials are refused; not renewed for " + lasted
	case CauseStalled:
		return "this process did not run for " + lasted
	case CauseSuspended:
		return "this machine slept for " + lasted
	case CauseReleased:
		return "given back by its holder"
	}
	return string(l.cause)
}

// causeOf reads a cause from the wire.
func causeOf(word string) Cause {
	switch cause := Cause(word); cause {
	case CauseExpired, CauseRevoked, CauseForced, CauseMaxHold, CauseNoProgress:
		return cause
	}
	return CauseGone
}
