// Turns errors of the library into those of the protocol.

package main

import (
	"context"
	"errors"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

// errUnsupported: this driver does not have the command.
var errUnsupported = errors.New("unsupported")

// errCancelled is the cause with which the command `cancel` ends another one.
var errCancelled = errors.New("cancelled by the runner")

// errorFields says what went wrong, by kind.
func errorFields(err error) fields {
	out := fields{"message": err.Error(), "effect": string(tenure.EffectOf(err))}
	var refused *tenure.RefusedError
	var lost *tenure.LostError
	var cancelled *tenure.CancelledError
	var invalid *tenure.InvalidError
	switch {
	case errors.Is(err, errUnsupported):
		return fields{"kind": "unsupported"}
	// A loss comes first: work that also failed for another reason was stopped by it.
	case errors.As(err, &lost):
		out["kind"], out["cause"] = "lost", string(lost.Cause)
		if lost.By != "" {
			out["by"] = lost.By
		}
		if lost.Reason != "" {
			out["reason"] = lost.Reason
		}
	case errors.As(err, &cancelled):
		out["kind"] = "cancelled"
		if errors.Is(err, context.DeadlineExceeded) {
			out["kind"] = "timeout"
		}
	// The error of a fence may be any error, also one of this library.
	case errors.As(err, new(*tenure.FenceError)):
		out["kind"] = "fence"
	case errors.As(err, &refused):
		out["kind"], out["reason"] = "refused", refused.Reason
	case errors.As(err, &invalid):
		out["kind"], out["reason"] = "invalid", invalid.Reason
	case errors.As(err, new(*tenure.StillHeldError)):
		// The time that the runner gave to close was over.
		out["kind"] = "timeout"
	case errors.Is(err, tenure.ErrUnavailable):
		out["kind"] = "unavailable"
	case errors.Is(err, tenure.ErrUnknown):
		out["kind"] = "unknown"
	case errors.Is(err, tenure.ErrClosed):
		out["kind"] = "closed"
	case errors.Is(err, errCancelled), errors.Is(err, context.Canceled):
		out["kind"] = "cancelled"
	default:
		out["kind"] = "error"
	}
	return out
}
