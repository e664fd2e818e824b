// Converts between the wire and the package: bytes, times and errors.

package tenure

import (
	"encoding/base64"
	"time"
	"unicode/utf8"
)

// textOrBase64 returns bytes as text if they are text, else as base64.
func textOrBase64(value []byte) (text, encoded *string) {
	if utf8.Valid(value) {
		word := string(value)
		return &word, nil
	}
	word := base64.StdEncoding.EncodeToString(value)
	return nil, &word
}

// bytesOf reads bytes that are text or base64.
func bytesOf(text, encoded *string) []byte {
	switch {
	case text != nil:
		return []byte(*text)
	case encoded != nil:
		value, err := base64.StdEncoding.DecodeString(*encoded)
		if err == nil {
			return value
		}
	}
	return nil
}

func milliseconds(ms uint64) time.Duration { return time.Duration(ms) * time.Millisecond }

// millis rounds a duration up to milliseconds: a limit is never shorter on the wire than it was asked for.
func millis(d time.Duration) uint64 {
	return uint64(max((d+time.Millisecond-1)/time.Millisecond, 0))
}

// refusal turns an error of the wire into that of the client.
func (e *wireError) refusal() *RefusedError {
	refused := &RefusedError{
		Reason: e.Reason, Message: e.Message, Next: e.Next, Lock: e.Lock, Ahead: e.Ahead,
		RetryAfter: milliseconds(e.RetryAfterMs), effect: e.Effect,
	}
	if e.Holder != nil {
		refused.Holder = &Holder{
			Client: e.Holder.Client, Token: Token(e.Holder.Token), Held: milliseconds(e.Holder.HeldMs),
		}
	}
	for _, link := range e.Ring {
		refused.Ring = append(refused.Ring, RingLink(link))
	}
	return refused
}

// A meaning is what an error of the wire means for the sender of the request.
type meaning struct {
	// err is the error if the request is not sent again: it had no effect, and repeating it will not help.
	err error
	// again: the request had no effect and may be sent again, after this time at the earliest.
	again bool
	after time.Duration
	// doubt: the request may have taken effect.
	doubt bool
}

func (e *wireError) meaning() meaning {
	if e.Effect == EffectUnknown {
		return meaning{doubt: true}
	}
	after := milliseconds(e.RetryAfterMs)
	switch e.Reason {
	// Of all reasons that allow a retry, these go away soon and without intervention.
	case "NOT_LEADER", "NO_LEADER", "NO_QUORUM", "DEADLINE", "SHUTTING_DOWN", "CORRUPT", "REQUEST_WINDOW",
		"TOO_MANY_HOPS":
		return meaning{again: true, after: after}
	case "OVERLOADED":
		return meaning{again: true, after: after, err: e.refusal()}
	case "QUOTA":
		// A quota that is counted by time says when there is room again; others are full until their user frees some.
		return meaning{again: after > 0, after: after, err: e.refusal()}
	}
	return meaning{err: e.refusal()}
}

// isDenial returns whether the reason is about the client's credentials.
func isDenial(reason string) bool {
	return reason == "UNAUTHENTICATED" || reason == "PERMISSION_DENIED" || reason == "FORBIDDEN"
}
