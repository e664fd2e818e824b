// Tests queries over HTTP that members and proxies refuse, against a server that answers what the test says.

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

const noHistory = `{"changes":[]}`

func refusal(reason, more string) string {
	return fmt.Sprintf(`{"error":{"reason":%q,"message":"not now","effect":"none"%s}}`, reason, more)
}

// query asks for a history, whose searches are answered so. It returns when each of them came, and the error.
func query(t *testing.T, answer func(to http.ResponseWriter, number int)) ([]time.Time, error) {
	t.Helper()
	front := newFront(t, devcluster.Address())
	client := openWith(t, context.Background(), tenure.Config{
		Addresses: []string{front.address()}, Name: "ana", Timeout: 2 * time.Second,
	})
	var mu sync.Mutex
	var asked []time.Time
	front.mu.Lock()
	front.answer = func(to http.ResponseWriter, number int) {
		mu.Lock()
		asked = append(asked, time.Now())
		mu.Unlock()
		answer(to, number)
	}
	front.mu.Unlock()
	_, err := client.History(context.Background(), "past/x")
	mu.Lock()
	defer mu.Unlock()
	return asked, err
}

func TestAQueryIsAskedAgainAfterTheTimeThatTheAnswerNames(t *testing.T) {
	t.Parallel()
	asked, err := query(t, func(to http.ResponseWriter, number int) {
		switch number {
		case 0:
			answerWith(to, http.StatusServiceUnavailable, refusal("OVERLOADED", `,"retry_after_ms":300`))
		case 1:
			to.Header().Set("Retry-After", "1")
			to.WriteHeader(http.StatusBadGateway)
		default:
			answerWith(to, http.StatusOK, noHistory)
		}
	})
	if err != nil || len(asked) != 3 {
		t.Fatal(err, asked)
	}
	if first, second := asked[1].Sub(asked[0]), asked[2].Sub(asked[1]); first < 300*time.Millisecond || second < time.Second {
		t.Fatal(first, second)
	}
}

func TestThePausesOfAQueryGrow(t *testing.T) {
	t.Parallel()
	asked, err := query(t, func(to http.ResponseWriter, _ int) {
		answerWith(to, http.StatusServiceUnavailable, refusal("NO_LEADER", ""))
	})
	var unavailable *tenure.UnavailableError
	var cause *tenure.RefusedError
	if !errors.As(err, &unavailable) || !errors.As(unavailable.Cause, &cause) || cause.Reason != "NO_LEADER" {
		t.Fatal(err)
	}
	// With 20 ms in between it would be a hundred.
	if len(asked) < 4 || len(asked) > 15 {
		t.Fatal(len(asked))
	}
}

func TestAQueryThatMembersRefuseForNowFailsWithTheRefusalThatSaysWhy(t *testing.T) {
	t.Parallel()
	asked, err := query(t, func(to http.ResponseWriter, number int) {
		if number == 1 {
			answerWith(to, http.StatusServiceUnavailable, refusal("OVERLOADED", `,"next":"use more members"`))
			return
		}
		answerWith(to, http.StatusServiceUnavailable, refusal("NO_LEADER", ""))
	})
	var refused *tenure.RefusedError
	if !errors.As(err, &refused) || refused.Reason != "OVERLOADED" || refused.Next != "use more members" || len(asked) < 3 {
		t.Fatal(err, len(asked))
	}
	// There is no use in waiting for longer than the caller does.
	began := time.Now()
	asked, err = query(t, func(to http.ResponseWriter, _ int) {
		answerWith(to, http.StatusTooManyRequests, refusal("QUOTA", `,"retry_after_ms":60000`))
	})
	if !errors.As(err, &refused) || refused.Reason != "QUOTA" || refused.RetryAfter != time.Minute || len(asked) != 1 ||
		time.Since(began) > 2*time.Second {
		t.Fatal(err, len(asked))
	}
}

func TestAnAnswerThatRepeatingDoesNotHelpIsFinal(t *testing.T) {
	t.Parallel()
	for _, it := range []struct {
		status             int
		body, reason, next string
	}{
		{http.StatusForbidden, refusal("PERMISSION_DENIED", `,"next":"ask for the verb read"`), "PERMISSION_DENIED", "ask for the verb read"},
		{http.StatusNotFound, "<html>", "STRANGE_ANSWER", ""},
		{http.StatusInternalServerError, `{"error":{}}`, "STRANGE_ANSWER", ""},
		{http.StatusOK, "{", "STRANGE_ANSWER", ""},
	} {
		asked, err := query(t, func(to http.ResponseWriter, _ int) { answerWith(to, it.status, it.body) })
		var refused *tenure.RefusedError
		if !errors.As(err, &refused) || refused.Reason != it.reason || refused.Next != it.next || len(asked) != 1 {
			t.Error(it.status, err, len(asked))
		}
	}
}
