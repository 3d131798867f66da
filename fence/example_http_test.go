package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/fence"
)

// A documentServer has documents in memory. Each request comes with the fencing token of its sender's lease.
type documentServer struct {
	gate fence.Gate
	docs sync.Map
}

func (s *documentServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /documents/{name}", s.read)
	mux.HandleFunc("PUT /documents/{name}", s.write)
	return mux
}

// read gives the token to the gate first, so that no older holder can change what its sender has read.
func (s *documentServer) read(w http.ResponseWriter, r *http.Request) {
	token, err := tokenOf(r)
	if err == nil {
		err = s.gate.Check(r.Context(), r.PathValue("name"), token)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	text, found := s.docs.Load(r.PathValue("name"))
	if !found {
		http.NotFound(w, r)
		return
	}
	fmt.Fprint(w, text)
}

func (s *documentServer) write(w http.ResponseWriter, r *http.Request) {
	token, err := tokenOf(r)
	if err != nil {
		refuse(w, err)
		return
	}
	// All of it is read before Do: a slow sender must not keep the next holder waiting.
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	err = s.gate.Do(r.Context(), r.PathValue("name"), token, func() error {
		s.docs.Store(r.PathValue("name"), string(text))
		return nil
	})
	if err != nil {
		refuse(w, err)
	}
}

// tokenOf returns the token of a request. The gate refuses the token 0.
func tokenOf(r *http.Request) (uint64, error) {
	token, err := strconv.ParseUint(r.Header.Get("X-Fencing-Token"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: send X-Fencing-Token, which is Lease.Fence", fence.ErrInvalid)
	}
	return token, nil
}

func refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, fence.ErrStale):
		http.Error(w, err.Error(), http.StatusPreconditionFailed) // 412
	case errors.Is(err, fence.ErrInvalid):
		http.Error(w, err.Error(), http.StatusPreconditionRequired) // 428
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// put is the side that has the lock.
func put(url string, lease *redlock.Lease, text string) (status int) {
	// With lease.Context(), which ends with the lease, a late request is usually not even sent. Here the request stands
	// for one that was sent in time, and was held up on its way.
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPut, url, strings.NewReader(text))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("X-Fencing-Token", strconv.FormatUint(lease.Fence(), 10))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// A server that takes the fencing token from a header, and answers 412 (Precondition Failed) to a stale one.
func Example_httpServer() {
	var documents documentServer
	server := httptest.NewServer(documents.handler())
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	client, end := exampleClient()
	defer end()
	ctx, lock := context.Background(), client.Mutex("plan")

	paused, err := lock.WithTTL(100 * time.Millisecond).WithoutRenewal().Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	next, err := lock.Acquire(ctx) // after the first lease has expired
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release(ctx)
	fmt.Println("next holder:", put(server.URL+"/documents/plan", next, "the new plan"))
	fmt.Println("paused holder:", put(server.URL+"/documents/plan", paused, "the old plan"))
	// Output:
	// next holder: 200
	// paused holder: 412
}
