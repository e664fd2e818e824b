// Package planted lists the bugs that the conformance tests plant in the client.
//
// A Config carries the bug in a context of its own, so that nothing is global and no program outside this module can
// plant one.
package planted

import "context"

// A Bug is a defect that the client has on purpose. The zero value is none.
type Bug int

// The bugs, by the names of the environment variable TENURE_PLANT of the driver.
const (
	None Bug = iota
	// RenewalFromAnswer counts a renewal from its answer and not from before it was sent.
	RenewalFromAnswer
	// LossNotFinal lets a late answer revive a lost lease.
	LossNotFinal
	// RetryWithoutID repeats a request under a new id.
	RetryWithoutID
	// ReleaseWhileWorking tells the cluster that the work has stopped as soon as the lock is lost.
	ReleaseWhileWorking
	// CheckByTimer leaves it to a timer to notice that the time is over.
	CheckByTimer
)

var names = map[string]Bug{
	"":                      None,
	"renewal_from_answer":   RenewalFromAnswer,
	"count_from_answer":     RenewalFromAnswer,
	"loss_not_final":        LossNotFinal,
	"retry_without_id":      RetryWithoutID,
	"release_while_working": ReleaseWhileWorking,
	"check_by_timer":        CheckByTimer,
}

// Named returns the bug of this name.
func Named(name string) (Bug, bool) {
	bug, ok := names[name]
	return bug, ok
}

type key struct{}

// Context returns a context under which a client that is opened has the bug.
func Context(ctx context.Context, bug Bug) context.Context {
	return context.WithValue(ctx, key{}, bug)
}

// From returns the bug of a context.
func From(ctx context.Context) Bug {
	bug, _ := ctx.Value(key{}).(Bug)
	return bug
}
