package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// Reserve finds a free port on 127.0.0.1 and reserves it until release is called.
//
// It binds a socket that never listens. The kernel does not hand out such a port as an ephemeral port, and refuses
// connections to it. A server that asks for exactly this port gets it: SO_REUSEADDR allows that while no socket
// listens, and Go, Redis and Docker all set it. So no other process takes the port of a dead node, or answers there.
func Reserve() (port int, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			_ = syscall.Close(fd)
		}
	}()
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, nil, os.NewSyscallError("setsockopt", err)
	}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, nil, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, nil, os.NewSyscallError("getsockname", err)
	}
	at, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		err = fmt.Errorf("getsockname: %T", name)
		return 0, nil, err
	}
	return at.Port, func() { _ = syscall.Close(fd) }, nil
}

// CloseListener closes a listener so that connections are refused from now on. Close is not enough: while another
// goroutine starts a process, the child has a copy of every file descriptor until it executes its program, and the
// socket continues to listen. Shutdown ends the listening for all copies.
func CloseListener(listener net.Listener) error {
	var err error
	if socket, ok := listener.(syscall.Conn); ok {
		raw, rawErr := socket.SyscallConn()
		if err = rawErr; err == nil {
			controlErr := raw.Control(func(fd uintptr) {
				err = os.NewSyscallError("shutdown", syscall.Shutdown(int(fd), syscall.SHUT_RDWR))
			})
			err = errors.Join(err, controlErr)
		}
	}
	return errors.Join(err, listener.Close())
}
