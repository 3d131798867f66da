package fence_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The server of the example, request by request.
func TestTheExampleServerComparesTokens(t *testing.T) {
	var documents documentServer
	handler := documents.handler()
	ask := func(method, token, text string) (int, string) {
		request := httptest.NewRequestWithContext(t.Context(), method, "/documents/plan", strings.NewReader(text))
		if token != "" {
			request.Header.Set("X-Fencing-Token", token)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		return answer.Code, answer.Body.String()
	}
	expect := func(want int, method, token, text string) {
		t.Helper()
		status, _ := ask(method, token, text)
		require.Equal(t, want, status)
	}
	expect(428, "PUT", "", "no token")
	expect(428, "PUT", "0", "NoFence")
	expect(428, "PUT", "-1", "no number")
	expect(428, "PUT", "9007199254740992", "too large")
	expect(404, "GET", "33", "")
	expect(200, "PUT", "33", "old plan")
	expect(200, "GET", "34", "")
	expect(412, "PUT", "33", "after the next holder has read")
	expect(412, "GET", "33", "")
	status, text := ask("GET", "34", "")
	require.Equal(t, 200, status)
	require.Equal(t, "old plan", text)
	expect(200, "PUT", "34", "new plan")
	expect(200, "PUT", "34", "newer plan")
	_, text = ask("GET", "34", "")
	require.Equal(t, "newer plan", text)
}
