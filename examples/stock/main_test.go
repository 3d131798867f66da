package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

const shown = `10 items, 15 buyers: 10 bought one, 5 came too late, 0 left
a buyer that was paused for longer than its lease is refused, 0 left
`

func TestTheStockIsRightInSQLite(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, "", ""))
	require.Equal(t, shown, out.String())
}
