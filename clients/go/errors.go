// Defines the client's errors, and what the caller may conclude from each.

package tenure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Effect says whether a request may have taken effect.
type Effect string

// The effects of a request that did not succeed.
const (
	// EffectNone: it did not happen and will not.
	EffectNone Effect = "none"
	// EffectUnknown: it may have happened, or may still.
	EffectUnknown Effect = "unknown"
)

// An Error is what every error of this package implements. Use [errors.As] to get one from an error chain.
type Error interface {
	error
	// Effect says whether the request may have taken effect.
	Effect() Effect
	// Retryable says whether nothing happened and the same request may succeed if it is repeated later.
	Retryable() bool
}

// Sentinels for [errors.Is]. Each matches every error of its kind.
var (
	// ErrHeld matches a refusal because another client has the lock and the request does not wait.
	ErrHeld error = &RefusedError{Reason: "HELD"}
	// ErrWaitTimeout matches a refusal because the wait for the lock was over.
	ErrWaitTimeout error = &RefusedError{Reason: "WAIT_TIMEOUT"}
	// ErrLost matches every [*LostError].
	ErrLost error = &LostError{}
	// ErrUnavailable matches every [*UnavailableError]: no member took the request, and nothing happened.
	ErrUnavailable error = &UnavailableError{}
	// ErrUnknown matches every [*UnknownError]: the request may have happened.
	ErrUnknown error = &UnknownError{}
	// ErrClosed is returned by a client that was closed. Nothing happened.
	ErrClosed error = &closedError{}
)

// EffectOf returns what an error says about the request. It returns [EffectNone] for nil and for errors that are not of
// this package, such as those of the work that [Client.Do] ran.
func EffectOf(err error) Effect {
	var known Error
	if errors.As(err, &known) {
		return known.Effect()
	}
	return EffectNone
}

// Retryable returns whether err says that nothing happened and that the same request may succeed later.
func Retryable(err error) bool {
	var known Error
	return errors.As(err, &known) && known.Retryable()
}

// A RefusedError says that the cluster decided, and the answer is no. Nothing was done.
//
// Reason is the stable word for programs: HELD, WAIT_TIMEOUT, DEADLOCK, PERMISSION_DENIED and so on. It compares equal
// to another RefusedError under [errors.Is] if that has the same Reason and nothing else.
type RefusedError struct {
	// Reason is the stable word for programs.
	Reason string
	// Message is the sentence for people.
	Message string
	// Next is what to do next, if the cluster says so.
	Next string
	// Lock is the lock that it is about.
	Lock string
	// Holder has the lock, if that is the reason and the caller may know.
	Holder *Holder
	// Ahead is how many wait for the lock.
	Ahead int
	// Ring is the ring of waits that a deadlock would close, starting with the asker.
	Ring []RingLink
	// RetryAfter is when to try again, if the cluster says so.
	RetryAfter time.Duration

	effect Effect
}

// A Holder is a client that has a lock, as shown to one who does not.
type Holder struct {
	Client string
	Token  Token
	Held   time.Duration
}

// A RingLink is one step of a ring of waits: this client waits for this lock.
type RingLink struct {
	Client string
	Lock   string
}

func (e *RefusedError) Error() string {
	if e.Message == "" {
		return "tenure: refused: " + e.Reason
	}
	return fmt.Sprintf("tenure: %s (%s)", e.Message, e.Reason)
}

// Is reports whether target is a RefusedError with the same reason.
func (e *RefusedError) Is(target error) bool {
	other, ok := target.(*RefusedError)
	return ok && other.Reason == e.Reason && other.Message == ""
}

// Effect implements [Error]. Only STRANGE_ANSWER and INTERNAL leave it open whether the request took effect.
func (e *RefusedError) Effect() Effect {
	if e.effect == "" {
		return EffectNone
	}
	return e.effect
}

// Retryable implements [Error].
func (e *RefusedError) Retryable() bool {
	if e.Effect() == EffectUnknown {
		return false
	}
	switch e.Reason {
	case "HELD", "WAIT_TIMEOUT",
		"REQUEST_WINDOW", "REQUESTS_FULL", "QUEUE_FULL", "TOO_MANY_LEASES", "NO_SPACE", "QUOTA_EXCEEDED", "QUIET",
		"DRAINING", "NOT_LEADER", "NO_LEADER", "NO_QUORUM", "DEADLINE", "OVERLOADED", "QUOTA", "SHUTTING_DOWN", "DISK_FULL",
		"CORRUPT", "TOO_SLOW", "SLOW_CONSUMER", "NOT_CAUGHT_UP", "LEVEL_NOT_KNOWN", "MEMBERSHIP_CHANGING",
		"TOO_MANY_HOPS":
		return true
	}
	return false
}

// A LostError says that a lease or lock is lost. The work under it was stopped, or the caller has to stop it.
type LostError struct {
	// Cause is the stable word for programs.
	Cause Cause
	// By is the name of the client that took the lock away or revoked the lease, if one did and it is known.
	By string
	// Reason is what that client gave as its reason. It is foreign text.
	Reason string
	// Lock and Token are the lock that was lost; empty for a lease.
	Lock  string
	Token Token

	lost loss
}

func lostError(lost loss, lock string, token Token) *LostError {
	return &LostError{Cause: lost.cause, By: lost.by, Reason: lost.reason, Lock: lock, Token: token, lost: lost}
}

func (e *LostError) Error() string {
	lost := e.lost
	if lost.cause == "" {
		lost = loss{cause: e.Cause, by: e.By, reason: e.Reason}
	}
	if e.Lock != "" {
		return fmt.Sprintf("tenure: lost lock `%s` (token %d): %s", e.Lock, e.Token, lost)
	}
	return "tenure: lost: " + lost.String()
}

// Is reports whether target is [ErrLost], or a LostError with the same cause and nothing else.
func (e *LostError) Is(target error) bool {
	other, ok := target.(*LostError)
	return ok && other.Lock == "" && (other.Cause == "" || other.Cause == e.Cause)
}

// Effect implements [Error]: what the work did until it was stopped has happened.
func (e *LostError) Effect() Effect { return EffectUnknown }

// Retryable implements [Error].
func (e *LostError) Retryable() bool { return false }

// An UnavailableError says that no member took the request. It had no effect.
type UnavailableError struct {
	// Waited is how long the client tried.
	Waited time.Duration
	// Tried lists the addresses that were tried, with their outcomes.
	Tried []Tried
	// Cause is what the last attempt of a query failed with, if a member or a proxy answered or its connection broke.
	Cause error
}

// A Tried is an address, and the outcome of the last attempt to connect to it.
type Tried struct {
	Address string
	// Outcome is "connected", or the reason why not.
	Outcome string
}

func (e *UnavailableError) Error() string {
	text := "tenure: no member took the request; nothing happened"
	for at, tried := range e.Tried {
		separator := ", "
		if at == 0 {
			separator = ": "
		}
		text += separator + tried.Address + " " + tried.Outcome
	}
	if e.Cause != nil {
		text += fmt.Sprintf(" (%v)", e.Cause)
	}
	return text
}

// Is reports whether target is [ErrUnavailable].
func (e *UnavailableError) Is(target error) bool {
	_, ok := target.(*UnavailableError)
	return ok
}

// Effect implements [Error].
func (e *UnavailableError) Effect() Effect { return EffectNone }

// Retryable implements [Error].
func (e *UnavailableError) Retryable() bool { return true }

// An UnknownError says that the request was sent and its outcome is not known. It may have taken effect.
type UnknownError struct {
	// RequestID is the id under which the request can be repeated with [RequestID]; empty for requests that have none.
	RequestID string
	// Waited is how long the client waited.
	Waited time.Duration
}

func (e *UnknownError) Error() string {
	of := ""
	if e.RequestID != "" {
		of = " of request " + e.RequestID
	}
	return fmt.Sprintf("tenure: no outcome%s within %s; it may have happened", of, seconds(e.Waited))
}

// Is reports whether target is [ErrUnknown].
func (e *UnknownError) Is(target error) bool {
	_, ok := target.(*UnknownError)
	return ok
}

// Effect implements [Error].
func (e *UnknownError) Effect() Effect { return EffectUnknown }

// Retryable implements [Error].
func (e *UnknownError) Retryable() bool { return false }

// A CancelledError says that the caller's context ended before the answer came. It wraps the error of that context.
type CancelledError struct {
	err    error
	cause  error
	effect Effect
}

func cancelled(ctx context.Context, effect Effect) *CancelledError {
	return &CancelledError{err: ctx.Err(), cause: context.Cause(ctx), effect: effect}
}

func (e *CancelledError) Error() string {
	about := "nothing happened"
	if e.effect == EffectUnknown {
		about = "it may have happened"
	}
	return fmt.Sprintf("tenure: %v; %s", e.cause, about)
}

// Unwrap returns the error of the context, and its cause if that is another one.
func (e *CancelledError) Unwrap() []error {
	if e.cause == e.err {
		return []error{e.err}
	}
	return []error{e.err, e.cause}
}

// Effect implements [Error]. After a lock was waited for it is [EffectNone]: the client gives back what may still be
// granted.
func (e *CancelledError) Effect() Effect { return e.effect }

// Retryable implements [Error].
func (e *CancelledError) Retryable() bool { return false }

// An InvalidError says that the input is wrong. Nothing was sent.
type InvalidError struct {
	// Reason is the stable word for programs, as the cluster would say it.
	Reason  string
	Message string

	// The bounds of what would fit, for times.
	least, most time.Duration
}

func invalid(reason, format string, args ...any) *InvalidError {
	return &InvalidError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func (e *InvalidError) Error() string { return fmt.Sprintf("tenure: %s (%s)", e.Message, e.Reason) }

// Effect implements [Error].
func (e *InvalidError) Effect() Effect { return EffectNone }

// Retryable implements [Error].
func (e *InvalidError) Retryable() bool { return false }

// A FenceError says that the fence at the resource did not accept the token of a new holder: see [Fence]. The client gives
// the lock back, and no work has begun.
type FenceError struct {
	// Lock is the lock whose fence was not raised.
	Lock string
	// Err is what the function that raises the fence returned, or that it did not end in time.
	Err error
}

func (e *FenceError) Error() string {
	return fmt.Sprintf("tenure: the fence of lock `%s` was not raised: %v", e.Lock, e.Err)
}

// Unwrap returns the error of the fence.
func (e *FenceError) Unwrap() error { return e.Err }

// Effect implements [Error].
func (e *FenceError) Effect() Effect { return EffectNone }

// Retryable implements [Error].
func (e *FenceError) Retryable() bool { return false }

// A CompactedError says that the history does not reach back to the revision that a watch asked for.
type CompactedError struct {
	// Floor is the oldest revision that is kept.
	Floor Revision
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("tenure: the oldest retained revision is %d", e.Floor)
}

// Effect implements [Error].
func (e *CompactedError) Effect() Effect { return EffectNone }

// Retryable implements [Error].
func (e *CompactedError) Retryable() bool { return false }

// A StillHeldError says that the client was to close, and guards still exist at the end of the time.
type StillHeldError struct {
	// Locks are the locks of these guards.
	Locks []string
}

func (e *StillHeldError) Error() string { return "tenure: still held: " + strings.Join(e.Locks, ", ") }

// Effect implements [Error].
func (e *StillHeldError) Effect() Effect { return EffectNone }

// Retryable implements [Error].
func (e *StillHeldError) Retryable() bool { return true }

type closedError struct{}

func (*closedError) Error() string   { return "tenure: the client is closed" }
func (*closedError) Effect() Effect  { return EffectNone }
func (*closedError) Retryable() bool { return false }
func (*closedError) Is(target error) bool {
	_, ok := target.(*closedError)
	return ok
}

// strange is the error for an answer whose type does not match its request.
func strange() *RefusedError {
	return &RefusedError{
		Reason:  "STRANGE_ANSWER",
		Message: "the member answered something else than was asked",
		effect:  EffectUnknown,
	}
}

// wire is the refusal as a message of the wire.
func (e *RefusedError) wire() *wireError {
	return &wireError{Reason: e.Reason, Message: e.Message, Effect: e.Effect()}
}
