package main

import (
	"bytes"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/dbserver"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// On a real PostgreSQL, and on real Redis servers where there are some: as with the flags of the command.
func TestTheStockIsRightInPostgres(t *testing.T) {
	home, source, dead := dbserver.Postgres(t)
	db, err := sql.Open("pgx", source)
	require.NoError(t, err)
	home.AwaitReady(t, db, dead)
	require.NoError(t, db.Close())
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	enroll(t, f.URLs())
	for range 2 { // the tables may be there already
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out, strings.Join(f.URLs(), ","), source))
		require.Equal(t, shown, out.String())
	}
}

// enroll does what `redlock enroll` does.
func enroll(t *testing.T, urls []string) {
	// The nodes of a busy machine may need some time.
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(urls...), NodeTimeout: 3 * time.Second})
	require.NoError(t, err)
	require.NoError(t, client.Enroll(t.Context(), redlock.OnlyNew()))
	require.NoError(t, client.Close())
}
