// Package docker is a client for the few calls of the Docker Engine API that the docker fleet needs. Docker's own
// client and its wrappers bring some thirty modules, which would be in the module graph of everybody who imports this library.
//
// The paths have no version, so an engine of any age answers as it does by default. What is used has been in the API
// since version 1.24.
package docker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Client talks to one engine. It is safe for concurrent use.
type Client struct {
	endpoint string // as in DOCKER_HOST
	base     string // of the URL of every request
	http     *http.Client
}

const defaultEndpoint = "unix:///var/run/docker.sock"

// New makes a client of the engine that DOCKER_HOST names, or of the local one. It does not connect. TCP with TLS is
// used if DOCKER_TLS_VERIFY is set, with the files in DOCKER_CERT_PATH.
func New() (*Client, error) {
	endpoint := os.Getenv("DOCKER_HOST")
	if endpoint == "" {
		endpoint = defaultEndpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true} // a call leaves no goroutine behind
	c := &Client{endpoint: endpoint, base: "http://docker", http: &http.Client{Transport: transport}}
	switch {
	case u.Scheme == "unix":
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", u.Path)
		}
	case u.Scheme != "tcp" && u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%s: the scheme %q is none of unix, tcp, http and https", endpoint, u.Scheme)
	case u.Scheme == "https" || os.Getenv("DOCKER_TLS_VERIFY") != "":
		c.base = "https://" + u.Host
		if transport.TLSClientConfig, err = tlsConfig(os.Getenv("DOCKER_CERT_PATH")); err != nil {
			return nil, err
		}
	default:
		c.base = "http://" + u.Host
	}
	return c, nil
}

func tlsConfig(dir string) (*tls.Config, error) {
	if dir == "" {
		return nil, errors.New("TLS needs DOCKER_CERT_PATH")
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("ca.pem has no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// Endpoint is the engine's address, as in DOCKER_HOST.
func (c *Client) Endpoint() string { return c.endpoint }

// An Error is what the engine replied to a call that failed.
type Error struct {
	Status  int // of HTTP
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("docker: %s (status %d)", e.Message, e.Status) }

// IsAbsent reports whether the container, network or image of the call does not exist.
func IsAbsent(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsNotRunning reports whether a container could not get a signal because it does not run.
func IsNotRunning(err error) bool { return hasStatus(err, http.StatusConflict) }

func hasStatus(err error, status int) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Status == status
}

// send makes a request, and returns the reply of a call that succeeded. The caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, kind string, body io.Reader,
) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path+"?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	reply, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode < 300 || reply.StatusCode == http.StatusNotModified { // 304: started or stopped already
		return reply, nil
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(reply.Body, 64<<10))
	var said struct{ Message string }
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = strings.TrimSpace(string(text))
	}
	return nil, &Error{Status: reply.StatusCode, Message: said.Message}
}

// call makes a request with JSON both ways. in and out may be nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	kind := ""
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, kind = bytes.NewReader(text), "application/json"
	}
	reply, err := c.send(ctx, method, path, query, kind, body)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, reply.Body)
		return err
	}
	return json.NewDecoder(reply.Body).Decode(out)
}

// follow makes a request, and reads the stream by which the engine tells how a pull or a build goes on, to its end. A
// pull or build that fails says so only there. It gives up if there is no news for longer than silence.
func (c *Client) follow(ctx context.Context, silence time.Duration, path string, query url.Values, kind string,
	body io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silence, func() { cancel(fmt.Errorf("docker: no progress for %v", silence)) })
	defer timer.Stop()
	reply, err := c.send(ctx, http.MethodPost, path, query, kind, body)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer reply.Body.Close()
	var output strings.Builder // of a build
	for stream := json.NewDecoder(reply.Body); ; {
		var news struct{ Stream, Error string }
		err := stream.Decode(&news)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return cmp.Or(context.Cause(ctx), err)
		case news.Error != "":
			return fmt.Errorf("docker: %s%s", output.String(), news.Error)
		}
		timer.Reset(silence)
		if output.Len() < 64<<10 {
			output.WriteString(news.Stream)
		}
	}
}
