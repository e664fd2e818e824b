// Says why no session could be opened.

package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
)

// A dialError says why no session could be opened.
type dialError struct {
	word string
	// silent: the peer did not answer in time, so that it may still answer the next attempt.
	silent bool
	// denied: the credentials are the reason, and no other attempt will succeed with them.
	denied *RefusedError
}

func (e *dialError) Error() string { return e.word }

// dialFailure says in one word, where there is one, why no connection could be made.
func dialFailure(err error, refused *http.Response) *dialError {
	if refused != nil && refused.Body != nil {
		defer refused.Body.Close()
	}
	if refused != nil && refused.StatusCode != http.StatusSwitchingProtocols {
		if body := errorBody(refused.Body); body != nil {
			return closingFailure(body)
		}
		return &dialError{word: refused.Status}
	}
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &dialError{word: "timed out", silent: true}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &dialError{word: "refused"}
	}
	return &dialError{word: err.Error()}
}

// closingFailure turns the reason for which a member ends a session into the outcome of the attempt.
func closingFailure(closing *wireError) *dialError {
	failed := &dialError{word: closing.Message}
	if isDenial(closing.Reason) {
		failed.denied = closing.refusal()
	}
	return failed
}

// errorBody reads the error in the body of an HTTP answer; nil if the body has none of a member.
func errorBody(from io.Reader) *wireError {
	var body struct {
		Error *wireError `json:"error"`
	}
	if from == nil || json.NewDecoder(io.LimitReader(from, 64<<10)).Decode(&body) != nil {
		return nil
	}
	if body.Error != nil && body.Error.Reason == "" {
		return nil
	}
	return body.Error
}
