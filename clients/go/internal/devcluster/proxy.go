// Puts a proxy between client and member, which tests cut and silence.

package devcluster

import (
	"net"
	"sync"
	"testing"
)

// A Proxy passes connections on to a member.
type Proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	open    map[net.Conn]struct{}
	refuse  bool
	silence [2]bool // to the member, to the client
	resumed *sync.Cond
}

// NewProxy starts a proxy in front of an address. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, open: map[net.Conn]struct{}{}}
	p.resumed = sync.NewCond(&p.mu)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Resume()
		p.Cut()
	})
	go p.accept()
	return p
}

// Address is where clients connect to.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut breaks every connection. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.open = map[net.Conn]struct{}{}
}

// Refuse breaks every connection, and new ones at once.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Cut()
}

// SilenceAnswers swallows what the member says; SilenceAll, what both say.
func (p *Proxy) SilenceAnswers() { p.set(false, true) }

// SilenceAll keeps what both sides say, until Resume.
func (p *Proxy) SilenceAll() { p.set(true, true) }

// Resume ends Refuse and the silence. What was said in the silence is passed on now.
func (p *Proxy) Resume() {
	p.mu.Lock()
	p.refuse = false
	p.mu.Unlock()
	p.set(false, false)
}

func (p *Proxy) set(toMember, toClient bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence = [2]bool{toMember, toClient}
	p.resumed.Broadcast()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		member, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		if err != nil || p.refuse {
			_ = client.Close()
			if member != nil {
				_ = member.Close()
			}
			p.mu.Unlock()
			continue
		}
		p.open[client], p.open[member] = struct{}{}, struct{}{}
		p.mu.Unlock()
		go p.pass(client, member, 0)
		go p.pass(member, client, 1)
	}
}

func (p *Proxy) pass(from, to net.Conn, direction int) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		count, err := from.Read(buffer)
		p.mu.Lock()
		for p.silence[direction] {
			p.resumed.Wait()
		}
		p.mu.Unlock()
		if count > 0 {
			if _, err := to.Write(buffer[:count]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
