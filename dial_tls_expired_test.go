package redlock

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A client certificate that has expired was issued by the right authority: another one from there is no remedy.
func TestAnExpiredClientCertificateIsToBeRenewed(t *testing.T) {
	const expired, unknown = tls.AlertError(45), tls.AlertError(48) // RFC 8446, 6
	e := endpoint{tls: &tls.Config{Certificates: make([]tls.Certificate, 1)}}
	said := func(alert tls.AlertError) string {
		return e.explainTLS(&net.OpError{Op: "remote error", Err: alert}).Error()
	}
	require.Equal(t, "remote error: tls: expired certificate; "+remedyOurs, said(expired))
	require.NotContains(t, said(unknown), remedyOurs)
}
