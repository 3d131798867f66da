package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of a key that was released nothing is wrong. Of one that reached no quorum it is not known, so that code is the stronger.
func TestReleaseFailsWithTheCodeThatLeavesTheMostOpen(t *testing.T) {
	t.Parallel()
	lost, noQuorum := &exitError{exitLost, errors.New("lost")}, &exitError{exitNoQuorum, errors.New("no quorum")}
	unwritable := errors.New("no space left")
	for _, c := range []struct {
		released  []error
		unwritten error
		code      int
	}{
		{released: []error{nil, nil}},
		{released: []error{nil, lost}, code: exitLost},
		{released: []error{lost, noQuorum}, code: exitNoQuorum},
		{released: []error{noQuorum, lost, nil}, code: exitNoQuorum},
		{released: []error{nil, lost}, unwritten: unwritable, code: exitLost},
		{released: []error{nil, nil}, unwritten: unwritable, code: exitFailed},
	} {
		o := &releaser{stderr: io.Discard}
		asked, keys := 0, []string{"a", "b", "c"}[:len(c.released)]
		err := o.each(t.Context(), keys, func(key string) error {
			require.Equal(t, keys[asked], key)
			asked++
			return c.released[asked-1]
		}, func(int, error) error {
			require.Equal(t, len(keys), asked, "nothing is told before all are released")
			return c.unwritten
		})
		require.Equal(t, len(keys), asked)
		if c.code == 0 {
			require.NoError(t, err)
			continue
		}
		require.Error(t, err)
		code, _, _ := codeOf(err)
		require.Equal(t, c.code, code)
		if c.unwritten != nil {
			require.ErrorIs(t, err, c.unwritten)
		}
	}
}

// Nobody knows what became of the key at which a signal came, so nothing is told of it.
func TestReleaseTellsOnlyOfTheKeysBeforeASignal(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{true, false} { // the release of the second key; or it comes between two
		ctx, stop := context.WithCancel(t.Context())
		o, told := &releaser{stderr: io.Discard}, []int(nil)
		err := o.each(ctx, []string{"a", "b", "c"}, func(key string) error {
			if key == "b" {
				stop()
				if cut {
					return failure(ctx.Err())
				}
			}
			return nil
		}, func(i int, _ error) error { told = append(told, i); return nil })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, map[bool][]int{true: {0}, false: {0, 1}}[cut], told)
	}
}
