// Configures a client: addresses, names, times, TLS and credentials.

package tenure

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config is the settings of a [Client]. The zero value connects to a member on this machine.
type Config struct {
	// Addresses are the members' addresses: "host:port", "http://host:port", or "https://host:port" with CAFile. Two or
	// three suffice; the client learns of the others. Empty is 127.0.0.1:7450.
	Addresses []string
	// Name is what other clients see. Empty is the program, the host and the process.
	Name string
	// Timeout bounds every request, and the search for a member. Zero is 10 seconds.
	Timeout time.Duration
	// TTL is how long a lease lives after a renewal. Zero is 15 seconds.
	TTL time.Duration
	// Window is how long a lease is relied on after a renewal was sent. Zero is half of the ttl.
	Window time.Duration
	// Grace is how long the work may take to stop once it is told to. A grace that does not fit the ttl is an error.
	Grace time.Duration

	// CAFile is the authority that signs the members' certificates, in PEM form. With it every connection is under TLS
	// 1.3. The files are read again for every connection.
	CAFile string
	// CertFile and KeyFile are the client's own certificate, for members that ask for one.
	CertFile string
	KeyFile  string

	// APIKey proves who the client is ("tenure_…"). TokenFile names a file with a bearer token instead, which is read
	// again when it changes. Credentials are sent only under TLS and to this machine, unless InsecureCredentials is set.
	APIKey              string
	TokenFile           string
	InsecureCredentials bool

	// Logger gets a warning for each lost lock and each outage, and details at debug. Nil discards them.
	Logger *slog.Logger
	// Traceparent returns the span of the caller, whose context it gets, in the form of the W3C header, for the members'
	// traces. Empty for none; nil sends none. Requests of the client itself, such as renewals, carry none.
	Traceparent func(ctx context.Context) string
}

const (
	loopback       = "127.0.0.1:7450"
	defaultTimeout = 10 * time.Second
	defaultTTL     = 15 * time.Second
)

// ConfigFromEnv reads the environment: TENURE_ADDR has addresses separated by commas; TENURE_CA, TENURE_CERT and
// TENURE_KEY name files; TENURE_API_KEY is a key, or else TENURE_API_KEY_FILE names a file that has one, or else
// TENURE_TOKEN_FILE names a file with a token.
func ConfigFromEnv() (Config, error) {
	config := Config{
		CAFile:   os.Getenv("TENURE_CA"),
		CertFile: os.Getenv("TENURE_CERT"),
		KeyFile:  os.Getenv("TENURE_KEY"),
		APIKey:   os.Getenv("TENURE_API_KEY"),
	}
	for _, address := range strings.Split(os.Getenv("TENURE_ADDR"), ",") {
		if address = strings.TrimSpace(address); address != "" {
			config.Addresses = append(config.Addresses, address)
		}
	}
	if config.APIKey != "" {
		return config, nil
	}
	if path := os.Getenv("TENURE_API_KEY_FILE"); path != "" {
		key, err := os.ReadFile(path)
		if err != nil {
			return Config{}, invalid("SETUP", "cannot read the API key: %v", err)
		}
		config.APIKey = string(key)
		return config, nil
	}
	config.TokenFile = os.Getenv("TENURE_TOKEN_FILE")
	return config, nil
}

// complete fills in the defaults and checks what can be checked without a connection.
func (c Config) complete() (Config, error) {
	if len(c.Addresses) == 0 {
		c.Addresses = []string{loopback}
	}
	addresses := make([]string, 0, len(c.Addresses))
	for _, address := range c.Addresses {
		plain, err := c.address(address)
		if err != nil {
			return Config{}, err
		}
		addresses = append(addresses, plain)
	}
	c.Addresses = addresses
	if c.Name == "" {
		c.Name = ownName()
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Timeout < 0 {
		return Config{}, invalid("SETUP", "the timeout %v is negative", c.Timeout)
	}
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if _, err := c.leaseTiming(lockOptions{}); err != nil {
		return Config{}, err
	}
	if c.CertFile != "" && c.KeyFile == "" || c.CertFile == "" && c.KeyFile != "" {
		return Config{}, invalid("SETUP", "CertFile and KeyFile belong together")
	}
	c.APIKey = strings.TrimSpace(c.APIKey)
	if c.APIKey != "" && !isAPIKey(c.APIKey) {
		return Config{}, invalid("SETUP",
			"it is no API key: those are `tenure_`, 16 hexadecimal digits, `_` and 64 more")
	}
	if c.Logger == nil {
		c.Logger = slog.New(discardHandler{})
	}
	return c, nil
}

// address checks an address and returns it as host and port.
func (c Config) address(address string) (string, error) {
	plain, secure := strings.CutPrefix(address, "https://")
	plain, open := strings.CutPrefix(plain, "http://")
	plain = strings.TrimSuffix(plain, "/")
	switch {
	case secure && c.CAFile == "":
		return "", invalid("SETUP", "%s needs CAFile (TENURE_CA)", address)
	case open && c.CAFile != "":
		return "", invalid("SETUP", "%s is not under TLS, but CAFile is set", address)
	}
	if host, port, err := net.SplitHostPort(plain); err != nil || host == "" || port == "" {
		return "", invalid("SETUP", "`%s` is no address: it is host and port", address)
	}
	return plain, nil
}

// leaseTiming computes the timing of a new lease from the client's settings and the request's options.
func (c Config) leaseTiming(options lockOptions) (leaseTiming, error) {
	ttl, grace := c.TTL, c.Grace
	window := options.window
	if window == nil && c.Window != 0 {
		window = &c.Window
	}
	if options.ttl != 0 {
		ttl = options.ttl
	}
	if options.grace != 0 {
		grace = options.grace
	}
	timing, err := newLeaseTiming(ttl)
	if err == nil && window != nil {
		timing, err = timing.withWindow(*window)
	}
	if err == nil {
		timing, err = timing.stopWithin(grace)
	}
	return timing, err
}

func ownName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s@%s/%d", filepath.Base(os.Args[0]), host, os.Getpid())
}
