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
	return json.Unmarshal(text, into)
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
	if refused := errorBody(answer.Body); refused != nil {
		return nil, &httpError{refused}
	}
	return nil, fmt.Errorf("tenure: %s answered %s", address, answer.Status)
}

// An httpError is an error of the wire that came by HTTP.
type httpError struct{ *wireError }

func (e *httpError) Error() string { return e.wireError.refusal().Error() }

// askHTTP sends a harmless request to the current member, and to others if it cannot serve, within the client's timeout.
func (c *Client) askHTTP(ctx context.Context, method, path string, body, into any) error {
	limited, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	pause := callPauseMin
	for {
		session, err := c.connections.session(limited, false)
		if err == nil {
			err = c.httpJSON(limited, session.address, method, path, body, into)
		}
		if err == nil {
			return nil
		}
		var refused *httpError
		if errors.As(err, &refused) {
			if meaning := refused.meaning(); !meaning.again && !meaning.doubt {
				return meaning.err
			}
		}
		switch {
		case ctx.Err() != nil:
			return cancelled(ctx, EffectNone)
		case limited.Err() != nil || !sleep(limited, jittered(pause)):
			if ctx.Err() != nil {
				return cancelled(ctx, EffectNone)
			}
			return c.noSession(c.config.Timeout)
		}
		pause = min(pause*2, callPauseMax)
	}
}
