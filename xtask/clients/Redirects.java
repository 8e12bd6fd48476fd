import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

/** Follows redirects with both clients of the JDK: java Redirects.java BODY URL... */
public class Redirects {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newBuilder().followRedirects(HttpClient.Redirect.NORMAL).build();
        for (int index = 1; index < arguments.length; index++) {
            URI url = URI.create(arguments[index]);
            check(url, arguments[0], client.send(HttpRequest.newBuilder(url).build(), BodyHandlers.ofString()).body());
            HttpURLConnection connection = (HttpURLConnection) url.toURL().openConnection();
            if (connection.getResponseCode() != 200) {
                throw new IllegalStateException(url + ": " + connection.getResponseCode() + " " + connection.getURL());
            }
            check(url, arguments[0], new String(connection.getInputStream().readAllBytes()));
        }
    }

    private static void check(URI url, String expected, String body) {
        if (!body.equals(expected)) {
            throw new IllegalStateException(url + " leads to: " + body);
        }
    }
}
