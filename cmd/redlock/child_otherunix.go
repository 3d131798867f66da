//go:build unix && !linux

package main

import "syscall"

// dieWithUs does nothing: only Linux can do this.
func dieWithUs(*syscall.SysProcAttr) {}
