package scoreboard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// errInUse means that another process has the lock of a file.
var errInUse = errors.New("another scoreboard keeps its runs there; wait until it has ended, or name another file")

// place is the path without links, so that one file has one name.
func place(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) { // it is to be made
		var dir string
		dir, err = filepath.EvalSymlinks(filepath.Dir(path))
		target = filepath.Join(dir, filepath.Base(path))
	}
	if err != nil {
		return "", err
	}
	return filepath.Abs(target)
}

// checkFiles refuses what cannot be the file of --resume.
func (c *Command) checkFiles() error {
	if c.resume == "" {
		return nil
	}
	file, err := place(c.resume)
	if err != nil {
		return err
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("--resume %s: it is no file", c.resume)
	}
	if c.out == "" {
		return nil
	}
	if out, err := place(c.out); err == nil && out == file { // what is wrong with it is said when it is written
		return fmt.Errorf("--out and --resume are both %s; name two files", c.out)
	}
	return nil
}

// lockAt locks the file, whatever links lead to it.
func lockAt(path string) (unlock func(), err error) {
	file, err := place(path)
	if err == nil {
		unlock, err = lock(file)
	}
	if err != nil {
		return nil, fmt.Errorf("--resume %s: %w", path, err)
	}
	return unlock, nil
}

// replace writes into a temporary file and renames it. It keeps links, and what is no regular file: a device, or a pipe.
func replace(path string, data []byte) error {
	switch target, err := filepath.EvalSymlinks(path); {
	case err == nil:
		path = target
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	switch info, err := os.Lstat(path); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !info.Mode().IsRegular():
		return os.WriteFile(path, data, 0o644)
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new") // another process may write the same file
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	err = errors.Join(err, next.Chmod(0o644), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}
