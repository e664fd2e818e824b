// Reads streams of server-sent events, and resumes them on another member when a connection breaks.

package tenure

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// The pause between attempts to resume grows from the first value to the second.
	streamPauseMin = 20 * time.Millisecond
	streamPauseMax = time.Second
	// streamLineMax is the longest event that the client accepts.
	streamLineMax = messageBytesMax
)

// A serverEvent is one event of a stream.
type serverEvent struct {
	event string
	data  string
}

// An eventStream is the answer of one member.
type eventStream struct {
	body   io.Closer
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// openStream opens a stream at the current member. It tries again within the client's timeout, also for the reasons that
// are passing here and nowhere else.
func (c *Client) openStream(ctx context.Context, path string, passing ...string) (*eventStream, error) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	pause := streamPauseMin
	for {
		stream, err := c.openStreamOnce(ctx, limited, path)
		if err == nil {
			return stream, nil
		}
		after := time.Duration(0)
		var refused *httpError
		if errors.As(err, &refused) {
			if refused.Reason == "COMPACTED" {
				return nil, &CompactedError{Floor: Revision(refused.Revision)}
			}
			meaning := refused.meaning()
			if !meaning.again && !meaning.doubt && !slices.Contains(passing, refused.Reason) {
				return nil, meaning.err
			}
			after = meaning.after
		}
		if errors.Is(err, errNoSession) || !sleep(limited, max(jittered(pause), after)) {
			if ctx.Err() != nil {
				return nil, cancelled(ctx, EffectNone)
			}
			return nil, c.noSession(time.Since(began))
		}
		pause = min(pause*2, streamPauseMax)
	}
}

// openStreamOnce opens a stream that ends with ctx. limited bounds only the opening.
func (c *Client) openStreamOnce(ctx, limited context.Context, path string) (*eventStream, error) {
	session, err := c.connections.session(limited, false)
	if err != nil {
		return nil, err
	}
	streaming, cancel := context.WithCancel(ctx)
	unless := context.AfterFunc(limited, cancel)
	answer, err := c.httpSend(streaming, session.address, http.MethodGet, path, nil)
	unless()
	if err != nil {
		cancel()
		return nil, err
	}
	// When the session with the member ends, the stream is most likely dead too, and would be silent for ever.
	go func() {
		select {
		case <-session.over:
			cancel()
		case <-c.ended:
			cancel()
		case <-streaming.Done():
		}
	}()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, streamLineMax)
	return &eventStream{body: answer.Body, lines: lines, cancel: cancel}, nil
}

// next returns the next event, or an error if the connection ended.
func (s *eventStream) next() (serverEvent, error) {
	var event serverEvent
	for s.lines.Scan() {
		line := s.lines.Text()
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && event.event != "":
			return event, nil
		case field == "event":
			event.event = value
		case field == "data":
			event.data = value
		}
	}
	if err := s.lines.Err(); err != nil {
		return event, err
	}
	return event, io.EOF
}

func (s *eventStream) close() {
	s.cancel()
	// The answer was only read, so nothing is lost if closing fails.
	_ = s.body.Close()
}
