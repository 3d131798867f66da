//go:build unix && !linux

package main

import "syscall"

// dieWithUs does nothing: only Linux can.
func dieWithUs(*syscall.SysProcAttr) {}
