package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// engine is a pretended engine at a unix socket. A real one is used by the tests of package fleet.
func engine(t *testing.T, serve http.HandlerFunc) *Client {
	dir, err := os.MkdirTemp("", "docker") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(serve)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	t.Setenv("DOCKER_HOST", "unix://"+l.Addr().String())
	c, err := New()
	require.NoError(t, err)
	require.Equal(t, "unix://"+l.Addr().String(), c.Endpoint())
	return c
}

func TestAnErrorHasTheEnginesMessageAndItsKind(t *testing.T) {
	c := engine(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/containers/gone/json":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"No such container: gone"}`)
		case "/containers/stopped/kill":
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"message":"Container stopped is not running"}`)
		case "/containers/running/start":
			w.WriteHeader(http.StatusNotModified)
		default:
			http.Error(w, "a proxy's page", http.StatusBadGateway)
		}
	})
	_, err := c.Inspect(t.Context(), "gone")
	require.EqualError(t, err, "docker: No such container: gone (status 404)")
	require.True(t, IsAbsent(err))
	err = c.Kill(t.Context(), "stopped", "SIGTERM")
	require.True(t, IsNotRunning(err))
	require.False(t, IsAbsent(err))
	require.NoError(t, c.Start(t.Context(), "running"))
	require.EqualError(t, c.Ping(t.Context()), "docker: a proxy's page (status 502)")
	has, err := c.HasImage(t.Context(), "registry:5000/a/b:1")
	require.Error(t, err)
	require.False(t, has)
}

func TestAPullThatFailsSaysSoInItsStream(t *testing.T) {
	var query string
	c := engine(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		fmt.Fprint(w, `{"status":"Pulling from library/redis"}`+"\n")
		if strings.Contains(query, "bad") {
			fmt.Fprint(w, `{"errorDetail":{"message":"no such tag"},"error":"no such tag"}`+"\n")
		}
	})
	require.NoError(t, c.Pull(t.Context(), "redis:7", time.Minute))
	require.Equal(t, "fromImage=redis%3A7", query)
	require.NoError(t, c.Pull(t.Context(), "registry:5000/redis", time.Minute))
	require.Equal(t, "fromImage=registry%3A5000%2Fredis&tag=latest", query)
	require.EqualError(t, c.Pull(t.Context(), "redis:bad", time.Minute), "docker: no such tag")
}

func TestAPullWithoutProgressIsGivenUp(t *testing.T) {
	for _, begins := range []bool{false, true} {
		c := engine(t, func(w http.ResponseWriter, r *http.Request) {
			if begins {
				fmt.Fprint(w, `{"status":"Waiting"}`+"\n")
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done() // the client has gone
		})
		require.EqualError(t, c.Pull(t.Context(), "redis:7", 50*time.Millisecond), "docker: no progress for 50ms")
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	c := engine(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Wait(ctx, "x"), context.DeadlineExceeded)
	require.ErrorIs(t, c.Build(ctx, "x", nil, nil), context.DeadlineExceeded)
}

func TestABuildThatFailsHasItsOutput(t *testing.T) {
	c := engine(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"stream":"Step 1/2 : FROM scratch\n"}{"error":"COPY failed"}`)
	})
	require.EqualError(t, c.Build(t.Context(), "x", nil, nil), "docker: Step 1/2 : FROM scratch\nCOPY failed")
}

func TestListsAreFilteredByLabels(t *testing.T) {
	c := engine(t, func(w http.ResponseWriter, r *http.Request) {
		var filters map[string][]string
		if err := json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		fmt.Fprintf(w, `[{"Id":"1","Names":["/a"],"Name":"net","Labels":{"l":%q,"all":%q}}]`, filters["label"][0], r.URL.Query().Get("all"))
	})
	containers, err := c.Containers(t.Context(), "fleet=x")
	require.NoError(t, err)
	require.Equal(t, []Object{{ID: "1", Name: "net", Names: []string{"/a"}, Labels: map[string]string{"l": "fleet=x", "all": "1"}}}, containers)
	networks, err := c.Networks(t.Context(), "fleet")
	require.NoError(t, err)
	require.Equal(t, "fleet", networks[0].Labels["l"])
}

func TestOutputComesInFrames(t *testing.T) {
	text, err := readFrames(strings.NewReader("\x01\x00\x00\x00\x00\x00\x00\x03one\x02\x00\x00\x00\x00\x00\x00\x04 two"))
	require.NoError(t, err)
	require.Equal(t, "one two", text)
	text, err = readFrames(strings.NewReader("\x01\x00\x00\x00\x00\x00\x00\x09cut"))
	require.Error(t, err)
	require.Equal(t, "cut", text)
}

func TestTheEnginesAddressIsThatOfTheEnvironment(t *testing.T) {
	t.Setenv("DOCKER_HOST", "ssh://host")
	_, err := New()
	require.ErrorContains(t, err, `the scheme "ssh" is none of unix, tcp, http and https`)
	t.Setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
	c, err := New()
	require.NoError(t, err)
	require.Equal(t, "http://10.0.0.1:2375", c.base)
	t.Setenv("DOCKER_TLS_VERIFY", "1")
	t.Setenv("DOCKER_CERT_PATH", "")
	_, err = New()
	require.ErrorContains(t, err, "DOCKER_CERT_PATH")
	t.Setenv("DOCKER_CERT_PATH", t.TempDir())
	_, err = New()
	require.ErrorContains(t, err, "cert.pem")
	t.Setenv("DOCKER_HOST", "")
	t.Setenv("DOCKER_TLS_VERIFY", "")
	c, err = New()
	require.NoError(t, err)
	require.Equal(t, defaultEndpoint, c.Endpoint())
}
