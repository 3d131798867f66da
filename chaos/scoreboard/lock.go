//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package scoreboard

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps other processes from the file until unlock is called, with another file beside it: the file itself is replaced
// at each write. If this process is killed, the system ends the lock.
func lock(path string) (unlock func(), err error) {
	for {
		file, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return nil, errors.Join(errInUse, file.Close())
		case err != nil && !errors.Is(err, errors.ErrUnsupported): // as on some network file systems
			return nil, errors.Join(err, file.Close())
		}
		if isAt(file, path+".lock") {
			return func() {
				_ = os.Remove(file.Name()) // before another can lock it
				_ = file.Close()
			}, nil
		}
		_ = file.Close() // the one that had locked it removed it meanwhile
	}
}

func isAt(file *os.File, path string) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}
