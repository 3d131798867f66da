//go:build !linux

package server

import "net"

// Reserve finds a port on 127.0.0.1 that is free now. Another process may take it before it is used, or while a node is
// down. Only on Linux can it be reserved.
func Reserve() (port int, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, func() {}, nil
}

// CloseListener closes a listener. A process that is just being started may keep it open for a moment.
func CloseListener(listener net.Listener) error { return listener.Close() }
