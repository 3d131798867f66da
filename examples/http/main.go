// Command http shows a middleware that lets one request at a time into a resource, over all replicas of a service. The
// others get the status 409 at once.
//
//	go run ./examples/http
//	go run ./examples/http -nodes redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1 -listen localhost:8080
//	curl -X POST localhost:8080/orders/7/pay & curl -i -X POST localhost:8080/orders/7/pay
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/examples/internal/nodes"
)

func main() {
	log.SetFlags(0)
	urls := flag.String("nodes", "", nodes.Usage)
	listen := flag.String("listen", "", "serve on this address; empty: send some requests and end")
	flag.Parse()
	ctx := context.Background()
	list, end, err := nodes.Open(ctx, *urls)
	if err != nil {
		log.Fatal(err)
	}
	defer end()
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(list...)})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if *listen != "" {
		server := &http.Server{Addr: *listen, Handler: service(client, slowly), ReadHeaderTimeout: 10 * time.Second}
		log.Fatal(server.ListenAndServe())
	}
	if err := show(ctx, os.Stdout, client); err != nil {
		log.Fatal(err)
	}
}

// service is the program: an order must not be paid twice at the same moment.
func service(client *redlock.Client, pay func(context.Context, string) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{order}/pay", oneAtATime(client,
		func(r *http.Request) string { return "order/" + r.PathValue("order") },
		func(w http.ResponseWriter, r *http.Request) {
			// Give the fencing token to whatever is changed: the lease may end while the payment is under way.
			if err := pay(r.Context(), r.PathValue("order")); err != nil {
				http.Error(w, "the payment failed", http.StatusBadGateway)
				return
			}
			fmt.Fprintln(w, "paid")
		}))
	return mux
}

func slowly(ctx context.Context, _ string) error {
	select {
	case <-time.After(5 * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// oneAtATime calls next under the lock that name gives to the request. The request's context then ends with the lease.
// While another request has the lock it answers 409, and 503 while the nodes are away.
func oneAtATime(client *redlock.Client, name func(*http.Request) string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := client.Mutex(name(r)).TryAcquire(r.Context())
		switch {
		case errors.Is(err, redlock.ErrHeld):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "another request is working on this", http.StatusConflict)
			return
		case errors.Is(err, redlock.ErrInvalid):
			http.Error(w, "this cannot be locked", http.StatusBadRequest) // a name of more than 1024 bytes, for example
			return
		case err != nil:
			w.Header().Set("Retry-After", "5")
			http.Error(w, "the locks are away", http.StatusServiceUnavailable)
			log.Print(err)
			return
		}
		defer func() { // also if next panics, and if the client has gone: that ends the request's context
			if err := lease.Release(context.WithoutCancel(r.Context())); err != nil {
				log.Printf("%s %s: %v", r.Method, r.URL.Path, err) // ErrLost: another request may have run meanwhile
			}
		}()
		next(w, r.WithContext(lease.With(r.Context())))
	})
}

// show sends five requests for one order at the same moment, and one for another. The payment waits until the other
// four were refused.
func show(ctx context.Context, out io.Writer, client *redlock.Client) error {
	const rivals = 4
	refused := make(chan struct{}, rivals+2)
	server := httptest.NewServer(service(client, func(ctx context.Context, order string) error {
		for range rivals {
			if order == "8" {
				break
			}
			select {
			case <-refused:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}))
	defer server.Close()
	answers := make(chan error)
	for i := range rivals + 2 {
		order := "7"
		if i == 0 {
			order = "8"
		}
		go func() { answers <- post(ctx, out, server.URL+"/orders/"+order+"/pay", refused) }()
	}
	var errs []error
	for range rivals + 2 {
		errs = append(errs, <-answers)
	}
	return errors.Join(errs...)
}

func post(ctx context.Context, out io.Writer, url string, refused chan<- struct{}) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "POST %s: %s: %s", request.URL.Path, response.Status, text)
	if response.StatusCode != http.StatusOK { // 409, or 503: the payment must not wait for it either
		refused <- struct{}{}
	}
	return err
}
