// Names the bugs that the conformance tests plant in this client to prove that they would be caught.
//
// The hook is unexported. The driver reaches it through the internal package that this file registers with; programs
// that use the client cannot.

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
