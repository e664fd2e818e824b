// Speaks HTTP with a member, for what a session does not offer: lists, streams, tickets.

package tenure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	// The pause between attempts of a query over HTTP grows from the first value to the second.
	queryPauseMin = 20 * time.Millisecond
	queryPauseMax = time.Second
)

// httpJSON sends one request to one member and reads its answer. Errors of the cluster are a [*RefusedError].
func (c *Client) httpJSON(ctx context.Context, address, method, path string, body, into any) error {
	answer, err := c.httpSend(ctx, address, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, messageBytesMax))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return &httpError{wireError: strange().wire()}
	}
	return nil
}

// httpSend sends one request to one member. The caller closes the body of the answer, which is a success.
func (c *Client) httpSend(ctx context.Context, address, method, path string, body any) (*http.Response, error) {
	header, failed := c.authorization(address)
	if failed != nil {
		return nil, failed.denied
	}
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
		header.Set("Content-Type", "application/json")
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url(address)+path, content)
	if err != nil {
		return nil, err
	}
	request.Header = header
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	refused := &httpError{wireError: errorBody(answer.Body)}
	if refused.wireError == nil {
		refused.wireError = strange().wire()
		refused.Message = fmt.Sprintf("%s answered %s", address, answer.Status)
		refused.passing = slices.Contains(passingStatus, answer.StatusCode)
	}
	if refused.RetryAfterMs == 0 {
		// Members say it in the body, too; what stands between says it in seconds. A date is not read.
		seconds, _ := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 32)
		refused.RetryAfterMs = seconds * 1_000
	}
	return nil, refused
}

// passingStatus are the answers of proxies and load balancers that go away soon.
var passingStatus = []int{
	http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// An httpError is an error of the wire that came by HTTP.
type httpError struct {
	*wireError
	// passing: the answer is not that of a member, and another attempt may reach one.
	passing bool
}

func (e *httpError) Error() string { return e.wireError.refusal().Error() }

// meaning is what the error means for a request that changes nothing: an unknown effect is none.
func (e *httpError) meaning() meaning {
	if e.passing {
		return meaning{again: true, after: milliseconds(e.RetryAfterMs)}
	}
	if e.Reason == "STRANGE_ANSWER" {
		return meaning{err: e.refusal()}
	}
	return e.wireError.meaning()
}

// askHTTP sends a harmless request to the current member, and to others if it cannot serve, within the client's timeout.
func (c *Client) askHTTP(ctx context.Context, method, path string, body, into any) error {
	began := time.Now()
	until := began.Add(c.config.Timeout)
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	// newest is the newest refusal that says why members do not serve, and last the last error of any kind.
	var newest, last error
	pause := queryPauseMin
	for {
		session, err := c.connections.session(limited, false)
		if err == nil {
			err = c.httpJSON(limited, session.address, method, path, body, into)
		}
		if err == nil {
			return nil
		}
		after := time.Duration(0)
		var refused *httpError
		var denied *RefusedError
		switch {
		case errors.As(err, &refused):
			meaning := refused.meaning()
			if !meaning.again && !meaning.doubt {
				return meaning.err
			}
			after, last = meaning.after, refused.refusal()
			if meaning.err != nil {
				newest = meaning.err
			}
		case errors.As(err, &denied):
			return denied
		case limited.Err() == nil && !errors.Is(err, errNoSession):
			last = err
		}
		wait := max(jittered(pause), after)
		if time.Now().Add(wait).Before(until) && sleep(limited, wait) {
			pause = min(pause*2, queryPauseMax)
			continue
		}
		if ctx.Err() != nil {
			return cancelled(ctx, EffectNone)
		}
		if newest != nil {
			return newest
		}
		err = c.noSession(time.Since(began))
		var unavailable *UnavailableError
		if errors.As(err, &unavailable) {
			unavailable.Cause = last
		}
		return err
	}
}
