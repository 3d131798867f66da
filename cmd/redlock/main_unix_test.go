//go:build unix

package main_test

import "syscall"

func noTerminal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
