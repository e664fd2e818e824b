// Runs one session with one member: opens it, writes requests, reads messages and detects a silent member.
//
// A request gets a response slot under its id before it is sent, and keeps the slot until the caller drops it. The
// answer and every later notification about the request arrive there in the order in which the member sent them.

package tenure

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	// quietMax is the idle time after which the session sends a ping, and silentMax how long the member may take to
	// answer it before the session counts as over.
	quietMax  = 2 * time.Second
	silentMax = 2 * time.Second
	// writeMax bounds one message to the socket: a member that does not read for so long counts as gone.
	writeMax = 5 * time.Second
	// messageBytesMax is the longest message that the client accepts.
	messageBytesMax = 16 << 20
	// responsesMax: an answer, a grant or the end of the wait, and the end of the session.
	responsesMax = 3
)

// A session is one connection to one member.
type session struct {
	client  *Client
	address string
	// member is the id of the member at the other end. Several addresses may lead to one member.
	member uint64
	conn   *websocket.Conn
	limits wireWelcome

	mu       sync.Mutex
	leader   wireLeader
	pending  map[uint64]*ask
	unsent   []wireRequest
	newestID uint64
	unheard  int

	wake   chan struct{}
	room   chan struct{}
	heard  atomic.Int64
	over   chan struct{}
	closer sync.Once
}

// An ask is a request that was sent on a session.
type ask struct {
	session   *session
	id        uint64
	responses chan response
	answered  bool
}

// A response is one thing that a member says about a request.
type response struct {
	answer  *wireAnswer
	granted *wireGranted
	// waitEnded: the wait is over without a grant.
	waitEnded *wireWaitEnded
	// gone: the session is over, and nothing more will come.
	gone bool
}

// openSession opens a session with the member at an address.
func openSession(ctx context.Context, c *Client, address string) (*session, *dialError) {
	ctx, cancel := context.WithTimeout(ctx, dialMax)
	defer cancel()
	header, failed := c.authorization(address)
	if failed != nil {
		return nil, failed
	}
	transport, err := c.transport()
	if err != nil {
		return nil, &dialError{word: err.Error()}
	}
	options := &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled,
	}
	conn, refused, err := websocket.Dial(ctx, c.url(address)+"/v1/ws", options)
	if err != nil {
		return nil, dialFailure(err, refused)
	}
	conn.SetReadLimit(messageBytesMax)
	s := &session{
		client: c, address: address, conn: conn, pending: map[uint64]*ask{},
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), over: make(chan struct{}),
	}
	if failed := s.greet(ctx); failed != nil {
		_ = conn.CloseNow()
		return nil, failed
	}
	s.heard.Store(time.Now().UnixNano())
	go s.read()
	go s.write()
	go s.watch()
	return s, nil
}

// greet says hello and reads the welcome.
func (s *session) greet(ctx context.Context) *dialError {
	hello := s.client.hello()
	text, err := json.Marshal(hello)
	if err != nil {
		return &dialError{word: err.Error()}
	}
	if err := s.conn.Write(ctx, websocket.MessageText, text); err != nil {
		return dialFailure(err, nil)
	}
	for {
		message, err := s.receive(ctx)
		if err != nil {
			return dialFailure(err, nil)
		}
		if message.Closing != nil {
			if message.Closing.Reason == "RESTORED" {
				s.client.restored()
			}
			return closingFailure(message.Closing)
		}
		if message.Welcome == nil {
			continue
		}
		s.limits = *message.Welcome
		s.member = uint64(message.Welcome.Header.MemberID)
		if message.Welcome.Leader != nil {
			s.leader = *message.Welcome.Leader
		}
		if err := s.client.recognise(message.Welcome); err != nil {
			return &dialError{word: err.Error()}
		}
		return nil
	}
}

func (s *session) receive(ctx context.Context) (*serverMessage, error) {
	_, text, err := s.conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	message := &serverMessage{}
	return message, json.Unmarshal(text, message)
}

// ask queues a request for sending and assigns its id. It returns nil if the session is over.
func (s *session) ask(request wireRequest) *ask {
	s.mu.Lock()
	if s.pending == nil {
		s.mu.Unlock()
		return nil
	}
	s.newestID++
	request.ID = s.newestID
	asked := &ask{session: s, id: request.ID, responses: make(chan response, responsesMax)}
	s.pending[request.ID] = asked
	s.unsent = append(s.unsent, request)
	s.mu.Unlock()
	signal(s.wake)
	return asked
}

// drop ends the interest in a request; later messages about it are ignored.
func (a *ask) drop() {
	a.session.mu.Lock()
	defer a.session.mu.Unlock()
	delete(a.session.pending, a.id)
}

// isOver returns whether the session has ended.
func (s *session) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// leaderElsewhere returns where the leader is, if it is known and is not the member at the other end.
func (s *session) leaderElsewhere() (wireLeader, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	elsewhere := s.leader.MemberID != 0 && uint64(s.leader.MemberID) != s.member && s.leader.Address != ""
	return s.leader, elsewhere
}

// suspect ends the session if the member, which did not answer one request in time, says nothing else either.
func (s *session) suspect() {
	if time.Since(time.Unix(0, s.heard.Load())) >= quietMax+silentMax/2 {
		s.close()
	}
}

// close ends the session and tells every pending request.
func (s *session) close() {
	s.closer.Do(func() {
		s.mu.Lock()
		pending := s.pending
		s.pending = nil
		s.unsent = nil
		s.mu.Unlock()
		close(s.over)
		for _, asked := range pending {
			asked.tell(response{gone: true})
		}
		// The peer may be frozen, so there is no farewell.
		_ = s.conn.CloseNow()
		s.client.connections.poke()
	})
}

// tell passes a response on. There is room for every response that a member may send; what a confused member sends
// beyond that is dropped.
func (a *ask) tell(said response) {
	select {
	case a.responses <- said:
	default:
	}
}

func (s *session) read() {
	defer s.close()
	for {
		message, err := s.receive(context.Background())
		if err != nil {
			return
		}
		s.heard.Store(time.Now().UnixNano())
		s.take(message)
		if message.Closing != nil {
			return
		}
	}
}

func (s *session) take(message *serverMessage) {
	s.mu.Lock()
	if message.Leader != nil {
		s.leader = *message.Leader
	}
	for at := range message.Answers {
		answer := &message.Answers[at]
		if answer.ID == 0 {
			// The member could not read a message. It names no request, so all of them count as unanswered.
			s.client.log.Error("a member could not read a message of this client", "address", s.address, "error", answer.Error)
			continue
		}
		asked := s.pending[answer.ID]
		if asked == nil {
			s.unheard = max(s.unheard-1, 0)
			continue
		}
		if !asked.answered {
			asked.answered = true
			s.unheard = max(s.unheard-1, 0)
		}
		asked.tell(response{answer: answer})
	}
	for at := range message.Grants {
		if asked := s.pending[message.Grants[at].ID]; asked != nil {
			asked.tell(response{granted: &message.Grants[at]})
		}
	}
	for at := range message.WaitsEnded {
		if asked := s.pending[message.WaitsEnded[at].ID]; asked != nil {
			asked.tell(response{waitEnded: &message.WaitsEnded[at]})
		}
	}
	s.mu.Unlock()
	signal(s.room)
	if message.Leader != nil {
		s.client.connections.poke()
	}
	for _, lost := range message.Losses {
		s.client.lockLost(lost, message.LeasesEnded)
	}
	for _, ended := range message.LeasesEnded {
		s.client.leaseEnded(ended)
	}
}

// write sends queued requests, several per message, within the limits of the member.
func (s *session) write() {
	defer s.close()
	for {
		select {
		case <-s.wake:
		case <-s.room:
		case <-s.over:
			return
		}
		for {
			batch := s.batch()
			if len(batch) == 0 {
				break
			}
			text, err := json.Marshal(clientMessage{Requests: batch})
			if err != nil {
				// Every field can be written as JSON, so this is a bug of the client.
				s.client.log.Error("cannot encode requests", "error", err)
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), writeMax)
			err = s.conn.Write(ctx, websocket.MessageText, text)
			cancel()
			if err != nil {
				return
			}
		}
	}
}

// batch takes the requests that may be sent now.
func (s *session) batch() []wireRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := min(len(s.unsent), s.limits.RequestsPerMessageMax, s.limits.InFlightMax-s.unheard)
	if count <= 0 {
		return nil
	}
	// A message has a size, too; a few long values fill it before its number of requests is reached.
	size := 0
	for at := range count {
		size += s.unsent[at].size()
		if at > 0 && size > s.limits.MessageBytesMax/2 {
			count = at
			break
		}
	}
	batch := s.unsent[:count:count]
	s.unsent = s.unsent[count:]
	s.unheard += count
	return batch
}

// size estimates the length of a request in JSON, as far as it varies.
func (r *wireRequest) size() int {
	length := func(text *string) int {
		if text == nil {
			return 0
		}
		return 2 * len(*text)
	}
	size := 512
	switch {
	case r.Renew != nil:
		size += 24 * len(r.Renew.Leases)
	case r.Put != nil:
		size += length(r.Put.Value) + length(r.Put.ValueBase64)
	case r.Acquire != nil:
		size += length(r.Acquire.Metadata) + length(r.Acquire.MetadataBase64) + 64*len(r.Acquire.Locks)
	case r.Update != nil:
		size += length(r.Update.Metadata) + length(r.Update.MetadataBase64)
	}
	return size
}

// watch sends a ping when nothing was heard for a while, and ends the session if the ping is not answered.
func (s *session) watch() {
	timer := time.NewTimer(quietMax)
	defer timer.Stop()
	for {
		select {
		case <-s.over:
			return
		case <-timer.C:
		}
		quiet := time.Since(time.Unix(0, s.heard.Load()))
		if quiet < quietMax {
			timer.Reset(quietMax - quiet)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), silentMax)
		err := s.conn.Ping(ctx)
		cancel()
		if err != nil {
			s.close()
			return
		}
		s.heard.Store(time.Now().UnixNano())
		timer.Reset(quietMax)
	}
}

// signal wakes the reader of a channel of capacity one, if it is not awake already.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
