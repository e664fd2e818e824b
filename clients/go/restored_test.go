// Tests what a client does when the cluster was restored from a backup, with a member that is made up.

package tenure_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	tenure "github.com/tenure-lock/tenure/clients/go"
)

// A restoredMember is of one epoch, and grants every lease and lock.
type restoredMember struct {
	mu    sync.Mutex
	epoch int
	conns []*websocket.Conn
	// refused counts hellos that named another epoch.
	refused int
}

// restore begins another epoch and ends every connection.
func (m *restoredMember) restore(epoch int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch = epoch
	for _, conn := range m.conns {
		_ = conn.CloseNow()
	}
}

func (m *restoredMember) ServeHTTP(to http.ResponseWriter, from *http.Request) {
	if from.URL.Path != "/v1/ws" {
		http.NotFound(to, from)
		return
	}
	conn, err := websocket.Accept(to, from, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	say := func(format string, args ...any) {
		_ = conn.Write(from.Context(), websocket.MessageText, fmt.Appendf(nil, format, args...))
	}
	for {
		_, text, err := conn.Read(from.Context())
		if err != nil {
			return
		}
		var heard struct {
			Hello    *struct{ Epoch int }
			Requests []struct {
				ID      int
				Acquire *struct {
					NewLease struct{ Lease string } `json:"new_lease"`
				}
			}
		}
		if json.Unmarshal(text, &heard) != nil {
			return
		}
		m.mu.Lock()
		epoch := m.epoch
		if heard.Hello != nil && heard.Hello.Epoch != 0 && heard.Hello.Epoch != epoch {
			m.refused++
			m.mu.Unlock()
			say(`{"closing":{"reason":"RESTORED","message":"the cluster was restored","effect":"none"}}`)
			return
		}
		m.conns = append(m.conns, conn)
		m.mu.Unlock()
		if heard.Hello != nil {
			say(`{"welcome":{"header":{"cluster_id":"9","member_id":"1","raft_term":"1","revision":"5"},"member":"a","epoch":%d,
				"incarnation":"%d","in_flight_max":64,"requests_per_message_max":64,"message_bytes_max":65536}}`, epoch, epoch)
		}
		for _, it := range heard.Requests {
			if it.Acquire != nil {
				say(`{"answers":[{"id":%d,"revision":"6","acquired":{"acquired":true,"token":"7","place":"1","lease_created":"6",
					"lease":{"lease":"%s","created":"6","ttl_ms":15000}}}]}`, it.ID, it.Acquire.NewLease.Lease)
			} else {
				say(`{"answers":[{"id":%d,"revision":"6","revoked":{}}]}`, it.ID)
			}
		}
	}
}

func TestARestoredClusterHasEndedEveryLease(t *testing.T) {
	t.Parallel()
	member := &restoredMember{epoch: 2}
	server := httptest.NewServer(member)
	defer server.Close()
	client := open(t, strings.TrimPrefix(server.URL, "http://"), "ana")
	guard := lock(t, client, "deploy")
	member.restore(3)
	var lost *tenure.LostError
	if err := guard.Lost(context.Background()); !errors.As(err, &lost) || lost.Cause != tenure.CauseGone {
		t.Fatal(err)
	}
	release(t, lock(t, client, "deploy"))
	// A member of the cluster as it was before is no member of ours.
	member.restore(1)
	eventually(t, "the older epoch is refused", func() bool {
		for _, tried := range client.Tried() {
			if strings.Contains(tried.Outcome, "before it was restored") {
				return true
			}
		}
		return false
	})
	member.mu.Lock()
	defer member.mu.Unlock()
	if member.refused == 0 {
		t.Fatal("the member was never asked for its epoch")
	}
}
