// Names the bugs that the conformance tests plant in this client to prove that they would be caught.
//
// The context that a client is opened with carries the bug, under a key of an internal package: the driver and the tests
// of this module can plant one, and programs that use the client cannot.

package tenure

import "github.com/tenure-lock/tenure/clients/go/internal/planted"

type plant = planted.Bug

const (
	plantRenewalFromAnswer   = planted.RenewalFromAnswer
	plantLossNotFinal        = planted.LossNotFinal
	plantRetryWithoutID      = planted.RetryWithoutID
	plantReleaseWhileWorking = planted.ReleaseWhileWorking
	plantCheckByTimer        = planted.CheckByTimer
)
