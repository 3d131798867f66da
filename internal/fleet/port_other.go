//go:build !linux

package fleet

import "net"

// reserve finds a port of 127.0.0.1 that is free now. Another process may take it before we do, or while
// a node is down; only Linux lets us keep it.
func reserve() (port int, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, func() {}, nil
}

// closeListener closes a listener. A process that is just being started may hold it open a moment longer.
func closeListener(listener net.Listener) error { return listener.Close() }
