// Holds the client's credentials and its trust, and applies both to every connection.

package tenure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
)

// tokenBytesMax bounds a bearer token.
const tokenBytesMax = 8 << 10

// url returns the base of the APIs at an address.
func (c *Client) url(address string) string {
	if c.config.CAFile != "" {
		return "https://" + address
	}
	return "http://" + address
}

// authorization returns the header that proves who the client is. Addresses come from other members too: each is
// checked before credentials are sent there.
func (c *Client) authorization(address string) (http.Header, *dialError) {
	header := http.Header{}
	secret := c.config.APIKey
	if secret == "" && c.config.TokenFile == "" {
		return header, nil
	}
	denied := func(format string, args ...any) *dialError {
		message := fmt.Sprintf(format, args...)
		return &dialError{word: message, denied: &RefusedError{Reason: "UNAUTHENTICATED", Message: message}}
	}
	if c.config.CAFile == "" && !c.config.InsecureCredentials && !isLoopback(address) {
		return nil, denied("credentials are not sent to %s in plain text: use TLS (CAFile), or set InsecureCredentials",
			address)
	}
	if secret == "" {
		// The file is small and connections are rare, so it is read each time: a replaced token is used at once.
		text, err := os.ReadFile(c.config.TokenFile)
		if err != nil {
			return nil, denied("cannot read the token: %v", err)
		}
		secret = strings.TrimSpace(string(text))
		if secret == "" || len(secret) > tokenBytesMax || strings.ContainsFunc(secret, notGraphic) {
			return nil, denied("there is no token in %s", c.config.TokenFile)
		}
	}
	header.Set("Authorization", "Bearer "+secret)
	return header, nil
}

// transport returns an HTTP transport with the client's trust. Its files are read again for every connection, so that
// a certificate is replaced without a restart.
func (c *Client) transport() (*http.Transport, error) {
	transport := &http.Transport{DialContext: (&net.Dialer{Timeout: dialMax}).DialContext, DisableKeepAlives: true}
	if c.config.CAFile == "" {
		return transport, nil
	}
	pem, err := os.ReadFile(c.config.CAFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("there is no certificate in %s", c.config.CAFile)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
	if c.config.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.config.CertFile, c.config.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the client's certificate: %w", err)
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return transport, nil
}

// isAPIKey returns whether a text has the form of an API key.
func isAPIKey(key string) bool {
	rest, ok := strings.CutPrefix(key, "tenure_")
	id, secret, cut := strings.Cut(rest, "_")
	return ok && cut && isHex(id, 16) && isHex(secret, 64)
}

func isHex(text string, length int) bool {
	return len(text) == length && strings.Trim(text, "0123456789abcdef") == ""
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func notGraphic(r rune) bool { return r <= ' ' || r > '~' }

// A discardHandler drops every record.
type discardHandler struct{}

func (discardHandler) Enabled(context.Context, slog.Level) bool  { return false }
func (discardHandler) Handle(context.Context, slog.Record) error { return nil }
func (d discardHandler) WithAttrs([]slog.Attr) slog.Handler      { return d }
func (d discardHandler) WithGroup(string) slog.Handler           { return d }
