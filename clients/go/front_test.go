// Puts a server between client and member, which records the requests of sessions and answers searches of the past.

package tenure_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// A front passes everything on to a member, except searches of the past while it has pages for them.
type front struct {
	target string
	proxy  *httputil.ReverseProxy
	server *httptest.Server

	mu       sync.Mutex
	requests []map[string]json.RawMessage
	pages    []string
	searches []url.Values
	// answer answers searches in place of the pages; it gets the number of the search, from 0.
	answer func(to http.ResponseWriter, number int)
}

// newFront starts a front of an address. It ends with the test.
func newFront(t testing.TB, target string, pages ...string) *front {
	t.Helper()
	f := &front{target: target, pages: pages}
	f.proxy = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target})
	f.server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

// address is where clients connect to.
func (f *front) address() string { return f.server.Listener.Addr().String() }

// sent returns the requests with this command that came so far.
func (f *front) sent(command string) (found []map[string]json.RawMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, request := range f.requests {
		if _, is := request[command]; is {
			found = append(found, request)
		}
	}
	return found
}

// asked returns the queries of the searches that were answered here.
func (f *front) asked() []url.Values {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.searches
}

// spans returns the spans of these requests; empty for none.
func (f *front) spans(command string) (spans []string) {
	for _, request := range f.sent(command) {
		span := ""
		if text, has := request["traceparent"]; has {
			_ = json.Unmarshal(text, &span)
		}
		spans = append(spans, span)
	}
	return spans
}

func (f *front) ServeHTTP(to http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/v1/ws" {
		f.session(to, request)
		return
	}
	isSearch := strings.HasPrefix(request.URL.Path, "/v1/history") || request.URL.Query().Get("view") == "history"
	f.mu.Lock()
	if answer, number := f.answer, len(f.searches); isSearch && answer != nil {
		f.searches = append(f.searches, request.URL.Query())
		f.mu.Unlock()
		answer(to, number)
		return
	}
	if !isSearch || len(f.pages) == 0 {
		f.mu.Unlock()
		f.proxy.ServeHTTP(to, request)
		return
	}
	page := f.pages[0]
	f.pages, f.searches = f.pages[1:], append(f.searches, request.URL.Query())
	f.mu.Unlock()
	answerWith(to, http.StatusOK, page)
}

// answerWith sends a JSON answer.
func answerWith(to http.ResponseWriter, status int, body string) {
	to.Header().Set("Content-Type", "application/json")
	to.WriteHeader(status)
	_, _ = to.Write([]byte(body))
}

func (f *front) session(to http.ResponseWriter, request *http.Request) {
	client, err := websocket.Accept(to, request, nil)
	if err != nil {
		return
	}
	defer client.CloseNow()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	member, _, err := websocket.Dial(ctx, "ws://"+f.target+"/v1/ws", nil)
	if err != nil {
		return
	}
	defer member.CloseNow()
	client.SetReadLimit(16 << 20)
	member.SetReadLimit(16 << 20)
	go func() {
		defer cancel()
		for {
			kind, text, err := member.Read(ctx)
			if err != nil || client.Write(ctx, kind, text) != nil {
				return
			}
		}
	}()
	for {
		kind, text, err := client.Read(ctx)
		if err != nil {
			return
		}
		f.record(text)
		if member.Write(ctx, kind, text) != nil {
			return
		}
	}
}

func (f *front) record(text []byte) {
	var message struct {
		Requests []map[string]json.RawMessage `json:"requests"`
	}
	if json.Unmarshal(text, &message) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, message.Requests...)
}
